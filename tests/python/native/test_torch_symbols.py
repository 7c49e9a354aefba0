"""The functions that native models look up are those of torch: tests/tools/torch_symbols.py.

Here with a torch of a few lines, and with the one of the other tests; `make test-torch-symbols`
has two with CUDA.
"""

import dataclasses
import importlib.util
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

TOOL = runpy.run_path(str(Path(__file__).parents[3] / "tests/tools/torch_symbols.py"))
pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("nm", "readelf", "c++"))), reason="nm, readelf or c++ is missing"
)

SHIM = """
#include <stdint.h>
struct AtenTensorOpaque;
using AtenTensorHandle = AtenTensorOpaque*;
extern "C" int32_t aoti_torch_get_dim(AtenTensorHandle tensor, int64_t* rank);
"""
INTERFACE = """
struct AOTInductorModelContainerOpaque;
using AOTInductorModelContainerHandle = AOTInductorModelContainerOpaque*;
extern "C" int32_t AOTInductorModelContainerDelete(AOTInductorModelContainerHandle container);
"""
RUNTIME = """
enum cudaError_t { cudaSuccess };
struct CUevent_st;
struct CUstream_st;
extern "C" cudaError_t cudaEventRecord(CUevent_st* event, CUstream_st* stream = 0);
"""
NAMES = ("aoti_torch_get_dim", "AOTInductorModelContainerDelete", "cudaEventRecord")


def compile_library(path, name, *needed):
    """Makes a library that has one function, and needs others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    code = f'extern "C" int {name}() {{ return 0; }}'
    command = ["c++", "-shared", "-fPIC", "-x", "c++", "-", "-o", path, f"-Wl,-soname,{path.name}"]
    command += ["-x", "none", "-Wl,--no-as-needed", *needed]
    subprocess.run(command, input=code, text=True, check=True)


@pytest.fixture(scope="module")
def torch(tmp_path_factory):
    """A folder with as much of torch as has `NAMES`; CUDA's runtime is a package of its own."""
    folder = tmp_path_factory.mktemp("torch")
    texts = {f"torch/include/{name}": "" for name in (*TOOL["HEADERS"], "ATen/Parallel.h")}
    shim, interface, _, _ = texts
    texts |= {shim: SHIM, interface: INTERFACE, "nvidia/cu/include/cuda_runtime_api.h": RUNTIME}
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    runtime = folder / "nvidia/cu/lib/libcudart.so"
    compile_library(runtime, "cudaEventRecord")
    compile_library(folder / "torch/lib/libtorch_cpu.so", "aoti_torch_get_dim")
    compile_library(folder / "torch/lib/libtorch_cuda.so", "anything", runtime)
    return folder


@pytest.fixture(scope="module")
def functions():
    return TOOL["looked_up"]()


def test_all_that_our_sources_look_up_is_looked_at(functions):
    shims, package = (path.read_text() for path in TOOL["SOURCES"])
    assert len(functions) == shims.count("(found.") + package.count('"AOTInductor')
    assert len({each.name for each in functions}) == len(functions)


def test_nothing_is_said_of_a_torch_that_fits(functions, torch):
    ours = [each for each in functions if each.name in NAMES]
    assert len(ours) == len(NAMES)
    assert TOOL["missing"](ours, torch) == []
    assert TOOL["different"](ours, torch) == []


@pytest.mark.parametrize(
    ("name", "library"),
    [("aoti_torch_get_dim", "libtorch_cpu.so"), ("cudaEventRecord", "libtorch_cuda.so")],
)
def test_a_name_that_no_library_has_is_reported(functions, torch, name, library):
    gone = [
        dataclasses.replace(each, name="nothing", needed=needed)
        for each in functions
        if each.name == name
        for needed in (True, False)
    ]
    assert TOOL["missing"](gone, torch) == [
        f"{library} has no nothing, nor has a library that it needs"
    ]


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("aoti_torch_get_dim", "std::int32_t (*)(TensorHandle, std::int32_t*)"),
        ("aoti_torch_get_dim", "std::int32_t (*)(TensorHandle)"),
        ("aoti_torch_get_dim", "std::int64_t (*)(TensorHandle, std::int64_t*)"),
        ("AOTInductorModelContainerDelete", "std::int32_t (*)(void**)"),
        ("cudaEventRecord", "char (*)(void*, void*)"),
    ],
)
def test_another_signature_is_reported(functions, torch, name, ours):
    function = next(each for each in functions if each.name == name)
    (problem,) = TOOL["different"]([dataclasses.replace(function, type=ours)], torch)
    assert f"{name} has another signature" in problem


def test_what_is_not_beside_torch_is_taken_from_the_cuda_of_the_machine(
    functions, torch, tmp_path, monkeypatch
):
    folder = shutil.copytree(torch, tmp_path / "packages")
    monkeypatch.setenv("CUDA_HOME", str(shutil.move(folder / "nvidia/cu", tmp_path / "cuda")))
    ours = [each for each in functions if each.name in NAMES]
    assert TOOL["missing"](ours, folder) == []
    assert TOOL["different"](ours, folder) == []


def test_a_torch_is_left_out_where_a_header_of_cuda_is_missing(torch, monkeypatch, capsys):
    monkeypatch.setitem(TOOL["main"].__globals__, "homes", list)
    monkeypatch.setattr("sys.argv", ["torch_symbols.py", str(torch)])
    with pytest.raises(SystemExit, match="77"):
        TOOL["main"]()
    assert "there is no crt/host_defines.h" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("metadata", "packages"),
    [
        (
            "Requires-Dist: nvidia-cuda-runtime-cu12==12.8.90; platform_system",
            ["nvidia-cuda-runtime-cu12==12.8.90", "nvidia-cuda-nvcc-cu12==12.8.*"],
        ),
        (
            "Requires-Dist: cuda-toolkit[cublas,cudart]==13.0.3; platform_system",
            ["cuda-toolkit[crt,cudart]==13.0.3"],
        ),
        ("Requires-Dist: filelock", []),
    ],
)
def test_the_runtime_of_cuda_is_the_one_that_torch_requires(metadata, packages):
    assert TOOL["runtime"](metadata) == packages


@pytest.mark.torch
def test_the_torch_of_these_tests_has_all_functions(functions):
    spec = importlib.util.find_spec("torch") or pytest.skip("no torch")
    folder = Path(spec.submodule_search_locations[0]).parent
    of_cpu = [each for each in functions if each.table != "CudaShims"]
    assert TOOL["missing"](of_cpu, folder) == []
    assert TOOL["different"](of_cpu, folder) == []
