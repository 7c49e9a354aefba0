"""Registers of the CUDA kernels, as their page says: tests/tools/kernel_figures.py."""

import os
import runpy
import shutil
from pathlib import Path

import pytest

EXPECTED = os.environ.get("SERVICE_STREAMER_EXPECT_NVCC") == "1"  # then nothing is skipped
pytestmark = pytest.mark.skipif(
    not (EXPECTED or shutil.which("c++filt")), reason="c++filt is missing"
)

TOOL = runpy.run_path(str(Path(__file__).parents[3] / "tests/tools/kernel_figures.py"))
KERNEL = (
    "_ZN16service_streamer4cuda41_GLOBAL__N__2c6a4ed3_9_gather_cu_eb26ff386gather"
    "INS1_7Bytes16EEEvPKNS0_9GatherRowEPT_NS1_6LayoutES7_"
)
REPORT = """\
ptxas info    : Compiling entry function '{kernel}' for 'sm_75'
ptxas info    : Function properties for {kernel}
    {stack} bytes stack frame, {stores} bytes spill stores, 0 bytes spill loads
ptxas info    : Used 52 registers, used 0 barriers, {shared}480 bytes cmem[0]
"""
"""what nvcc 13.0.88 prints for one kernel"""


@pytest.fixture(scope="module")
def compiler():
    leave = pytest.fail if EXPECTED else pytest.skip
    return TOOL["nvcc"]() or leave("no nvcc: `make test-kernels` installs one")


@pytest.fixture(scope="module")
def figures(compiler):
    return TOOL["figures"](compiler)


@pytest.mark.endurance
def test_kernels_keep_nothing_in_memory(figures):
    assert figures
    assert TOOL["in_memory"](figures) == []


@pytest.mark.endurance
def test_kernels_need_the_registers_of_the_page(figures, compiler):
    """After a change of the kernels, tests/tools/kernel_figures.py writes the page."""
    written = TOOL["TABLE"].search(TOOL["PAGE"].read_text())
    if (version := TOOL["version"](compiler)) != written["version"] and not EXPECTED:
        pytest.skip(f"the page has figures of nvcc {written['version']}; this is {version}")
    assert written[0] == TOOL["table"](figures, version)


@pytest.mark.parametrize(
    ("reported", "problems"),
    [
        ({}, []),
        ({"stack": 88}, ["gather<Bytes16> for sm_75: stack 88, spilled 0, shared 0"]),
        ({"stores": 8}, ["gather<Bytes16> for sm_75: stack 0, spilled 8, shared 0"]),
        (
            {"shared": "512 bytes smem, "},
            ["gather<Bytes16> for sm_75: stack 0, spilled 0, shared 512"],
        ),
    ],
)
def test_what_is_in_memory_is_found_in_the_report_of_ptxas(reported, problems):
    report = REPORT.format(**{"kernel": KERNEL, "stack": 0, "stores": 0, "shared": ""} | reported)
    found = TOOL["read"](report)
    assert TOOL["in_memory"](found) == problems
    assert TOOL["table"](found, "13.0.88").splitlines()[-1] == "| `gather<Bytes16>` | 52 |"
