"""Each public name is in the API reference, and its docstring has an example that runs."""

import asyncio
import importlib
import inspect
import os
import re
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("sybil")

if sys.version_info < (3, 11):
    pytest.skip("the reference is made with a newer Python", allow_module_level=True)

from page_snippets import closed_streamers, run_doctest
from torch_examples import marks as torch_marks

from service_streamer import RedisWorker

ROOT = Path(__file__).parents[3]
PACKAGES = ("embeddings", "extend", "hub", "metrics", "onnx", "otel", "server", "torch", "web")
REFERENCE = re.compile(r"<!-- reference: (\w+) ([\w. ]+) -->")


def public_names():
    for package in ("service_streamer", *(f"service_streamer.{name}" for name in PACKAGES)):
        for name in importlib.import_module(package).__all__:
            yield f"{package}.{name}"


def member(full):
    package, _, name = full.rpartition(".")
    return getattr(importlib.import_module(package), name)


def documented():
    """The names with a docstring of their own: not a string, and not a class of the library."""
    names = [name for name in public_names() if not isinstance(member(name), str)]
    return [name for name in names if member(name).__module__.startswith("service_streamer")]


def docstrings(full):
    """Those of a name and of its own public methods, by name."""
    found = {full: inspect.getdoc(member(full)) or ""}
    if inspect.isclass(member(full)):
        for name, each in inspect.getmembers(member(full)):
            if not name.startswith("_") and callable(each):
                found[f"{full}.{name}"] = inspect.getdoc(each) or ""
    return found


def examples():
    """Each docstring with an example once; `methods` of a base class have many names."""
    seen = set()
    packages = ["service_streamer", *(f"service_streamer.{name}" for name in PACKAGES)]
    texts = {name: importlib.import_module(name).__doc__ for name in packages}
    for full in documented():
        texts |= docstrings(full)
    for name, text in texts.items():
        if ">>> " in text and text not in seen:
            seen.add(text)
            marks = torch_marks() if "import torch\n" in text else []
            marks += [pytest.mark.over_redis] if "localhost:6379" in text else []
            marks += [pytest.mark.over_ray] if "RayStreamer(" in text else []
            yield pytest.param(text, id=name, marks=marks)


def test_the_reference_has_every_public_name_once():
    pages = sorted((ROOT / "docs/api").glob("*.md"))
    found = [found[2] for page in pages for found in REFERENCE.finditer(page.read_text())]
    assert sorted(found) == sorted(public_names())


def test_every_public_name_has_an_example():
    assert not [name for name in documented() if ">>> " not in inspect.getdoc(member(name))]


def test_all_code_in_docstrings_is_examples():
    texts = {full: text for name in documented() for full, text in docstrings(name).items()}
    assert not [full for full, text in texts.items() if "::\n\n" in text]


@pytest.fixture
def broker(request):
    """For examples over Redis: the place of a broker with a worker, and that in the examples."""
    if not request.node.get_closest_marker("over_redis"):
        yield "", ""
        return
    server = request.getfixturevalue("shared_redis_server")
    upper = RedisWorker(
        upper_texts, 64, redis_broker=server.url, prefix="upper", mp_start_method="fork"
    )
    thread = threading.Thread(target=upper.run_forever)
    thread.start()
    yield "localhost:6379", server.url
    upper.close()
    thread.join()


def upper_texts(texts):
    return [text.upper() for text in texts]


@pytest.mark.parametrize("text", list(examples()))
def test_an_example_runs(request, broker, tmp_path, monkeypatch, text):
    if request.node.get_closest_marker("torch"):
        request.getfixturevalue("torch")
        if "NativeModel(" in text or " compile(" in text:
            pytest.importorskip("service_streamer._torch")
    if request.node.get_closest_marker("over_ray"):
        request.getfixturevalue("ray_address")
    if "OnnxModel(" in text:
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    name = request.node.callspec.id
    names = {"__name__": "example", "asyncio": asyncio, "os": os, "threading": threading}
    for package in ("service_streamer", *(f"service_streamer.{each}" for each in PACKAGES)):
        if package == "service_streamer" or name.startswith(package):
            module = importlib.import_module(package)
            names |= {each: getattr(module, each) for each in module.__all__}
            names[package.rpartition(".")[2]] = module
    with closed_streamers():
        run_doctest(text.replace(*broker), names, name, 0)
