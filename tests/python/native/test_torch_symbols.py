"""The functions that native models look up are those of torch: tests/tools/torch_symbols.py."""

import dataclasses
import importlib.util
import runpy
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[3]
TOOL = runpy.run_path(str(ROOT / "tests/tools/torch_symbols.py"))


@pytest.fixture(scope="module")
def folder():
    spec = importlib.util.find_spec("torch")
    if spec is None or not all(map(shutil.which, ("nm", "readelf", "c++"))):
        pytest.skip("torch, nm, readelf or c++ is missing")
    return Path(spec.submodule_search_locations[0]).parent


@pytest.fixture(scope="module")
def functions():
    return TOOL["looked_up"](TOOL["SOURCE"].read_text())


def test_all_that_are_looked_up_are_looked_at(functions):
    assert len(functions) == TOOL["SOURCE"].read_text().count("(found.")


def test_they_are_there_with_our_signatures(functions, folder):
    of_cpu = [each for each in functions if not each.of_cuda]
    assert TOOL["missing"](of_cpu, folder) == []
    assert TOOL["different"](of_cpu, folder) == []


def test_a_missing_name_and_another_signature_are_found(functions, folder):
    rank = next(each for each in functions if each.member == "rank")
    gone = dataclasses.replace(rank, name="aoti_torch_get_nothing")
    assert TOOL["missing"]([gone], folder) == [
        "libtorch_cpu.so, with what it needs, has no aoti_torch_get_nothing"
    ]
    other = dataclasses.replace(rank, name="aoti_torch_get_dtype")  # a number of 32 bits
    (problem,) = TOOL["different"]([other], folder)
    assert "aoti_torch_get_dtype has another signature" in problem
