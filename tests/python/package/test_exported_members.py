"""What the package exports, and that the stub of the C++ module is complete."""

import ast
import importlib
import importlib.metadata
import inspect
import types
from pathlib import Path

import pytest

import service_streamer
from service_streamer import _core

PACKAGE = Path(service_streamer.__file__).parent
PUBLIC = [getattr(service_streamer, name) for name in service_streamer.__all__]
CLASSES = [member for member in PUBLIC if isinstance(member, type)]


def test_all_is_sorted_and_complete():
    names = service_streamer.__all__
    assert names == sorted(names)
    found = {
        name
        for name, member in vars(service_streamer).items()
        if not name.startswith("_")
        and not isinstance(member, types.ModuleType)
        and name != "annotations"
    }
    assert found == set(names) - {"__version__"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("NativeModel", "write from service_streamer.torch import NativeModel"),
        ("ModelHub", "write from service_streamer.hub import ModelHub"),
        ("TensorSpec", "service_streamer.hub import TensorSpec or from service_streamer.torch"),
        ("NoSuchName", "cannot import name 'NoSuchName' from 'service_streamer'"),
    ],
)
def test_an_import_of_what_another_package_has_says_where_it_is(name, text):
    before = dir(service_streamer)
    with pytest.raises(ImportError, match=text):
        exec(f"from service_streamer import {name}", {})
    assert dir(service_streamer) == before
    assert not hasattr(service_streamer, "no_such_name")


def test_what_is_exported():
    assert set(service_streamer.__all__) == {
        "AlreadyRecording",
        "AsyncStream",
        "BrokerError",
        "Cache",
        "CancelledError",
        "ClusterError",
        "ConsumerStats",
        "Future",
        "ManagedModel",
        "OutputSizeMismatch",
        "Pipeline",
        "QueueFull",
        "RayStreamer",
        "RecentStats",
        "Recorder",
        "RedisStreamer",
        "RedisWorker",
        "RequestTimeout",
        "SerializationError",
        "Stage",
        "StepModel",
        "StepStats",
        "Stream",
        "StreamStats",
        "Streamer",
        "StreamerClosed",
        "StreamerError",
        "StreamerStats",
        "TenantStats",
        "ThreadedStreamer",
        "TimeSummary",
        "WorkerInitError",
        "WorkerLost",
        "WorkerStats",
        "__version__",
        "batched",
        "run_redis_workers_forever",
    }


def test_version_is_that_of_the_distribution():
    assert service_streamer.__version__ == importlib.metadata.version("service-streamer-ng")
    with pytest.raises(AttributeError, match="no_such_name"):
        service_streamer.no_such_name  # noqa: B018


@pytest.mark.parametrize("member", CLASSES, ids=lambda member: member.__name__)
def test_classes_are_documented_and_named_after_the_package(member):
    assert inspect.getdoc(member)
    if not member.__module__.startswith("concurrent.futures"):
        assert member.__module__ == "service_streamer"


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_public_methods_are_documented(cls):
    for name, member in inspect.getmembers(cls, callable):
        if not name.startswith("_") and not isinstance(member, type):
            assert inspect.getdoc(member), f"{cls.__name__}.{name}"


@pytest.mark.parametrize(
    "name", ["_base", "_engine", "_models", "_statistics", "_streamers", "_threads"]
)
def test_modules_are_documented(name):
    assert inspect.getdoc(getattr(service_streamer, name))


@pytest.mark.parametrize("package", ["service_streamer.onnx", "service_streamer.torch"])
def test_models_of_files_are_exported_sorted_and_documented(child, package):
    module = importlib.import_module(package)
    assert module.__all__ == sorted(module.__all__)
    for name in module.__all__:
        member = getattr(module, name)
        assert inspect.getdoc(member), name
        assert member.__module__ == package
    heavy = {"numpy", "onnxruntime", "torch"}
    child(f"import sys, {package}; assert not {heavy} & sys.modules.keys()")


def test_importing_configures_no_logging(child):
    done = child(
        """
        import logging
        import service_streamer
        ours = logging.getLogger("service_streamer")
        print(ours.handlers, ours.level, logging.getLogger().handlers)
        """
    )
    assert done.stdout == "[] 0 []\n"


def test_the_package_is_marked_as_typed():
    assert (PACKAGE / "py.typed").is_file()


# ------------------------------------------------------------ the stub of _core

SPECIAL = ("__len__",)  # the special methods that a stub has


def stub_members(body):
    """Name → "class", "method" or "attribute" of what a stub defines."""
    members = {}
    for node in body:
        if isinstance(node, ast.ClassDef):
            members[node.name] = "class"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
            members[node.name] = "attribute" if "property" in decorators else "method"
        elif isinstance(node, ast.AnnAssign):
            members[ast.unparse(node.target)] = "attribute"
    return members


def real_members(owner):
    members = {}
    for name, member in vars(owner).items():
        if name.startswith(("__", "_pybind11")) and name not in SPECIAL:
            continue
        if isinstance(member, type):
            members[name] = "class"
        else:
            members[name] = "method" if callable(member) else "attribute"
    return members


def stub():
    return ast.parse((PACKAGE / "_core.pyi").read_text(encoding="utf-8")).body


def without_constructor(members):
    return {name: kind for name, kind in members.items() if name not in ("__init__", "__new__")}


def test_the_stub_has_the_members_of_the_module():
    names = {name: kind for name, kind in stub_members(stub()).items() if name[0] != "_"}
    assert names == {n: kind for n, kind in real_members(_core).items() if n[0] != "_"}


@pytest.mark.parametrize("name", [n for n, m in vars(_core).items() if isinstance(m, type)])
def test_the_stub_has_the_members_of_each_class(name):
    (node,) = [node for node in stub() if isinstance(node, ast.ClassDef) and node.name == name]
    real = real_members(getattr(_core, name))
    assert without_constructor(stub_members(node.body)) == without_constructor(real)
