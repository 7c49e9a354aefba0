"""Registers of the CUDA kernels, as their page says: tests/tools/kernel_figures.py."""

import runpy
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("c++filt") is None, reason="c++filt is missing")

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
    return TOOL["nvcc"]() or pytest.skip("no nvcc: `make test-kernels` installs one")


@pytest.fixture(scope="module")
def figures(compiler):
    return TOOL["figures"](compiler)


@pytest.mark.endurance
def test_kernels_keep_nothing_in_memory(figures):
    assert figures
    assert TOOL["in_memory"](figures) == []


@pytest.mark.endurance
def test_kernels_need_the_registers_of_the_page(figures, compiler):
    """After a change of the kernels, `python tests/tools/kernel_figures.py` writes the page."""
    written = TOOL["TABLE"].search(TOOL["PAGE"].read_text())
    if (version := TOOL["version"](compiler)) != written["version"]:
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
