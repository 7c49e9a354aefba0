"""Checks which code may use which.

- A folder of the core or the bindings includes only what `LEVELS` and `BINDINGS` list for it.
- Headers of Python, torch, CUDA and NVTX are included only where `FOREIGN` allows it.
- Python modules do not import each other in a circle, and use only the rooms in `ROOMS`.
- A room reads no private member of an object of another room, and looks up no module by a string.
- C++ calls Python code of the package only through `_from_core`, which has nothing else.
- `import service_streamer` loads no slow module, opens no descriptor and starts no thread.
"""

import ast
import functools
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from service_streamer import _core, _from_core

ROOT = Path(__file__).parents[3]

# Each folder of the core and the folders that it may include.
LEVELS = {
    "base": set(),
    "waiting": {"base"},
    "batching": {"base", "waiting"},
    "shared_memory": {"base"},
    "wire": {"base", "batching", "shared_memory"},
    "transport": {"base", "waiting", "shared_memory", "wire"},
    "calls": {"base", "waiting", "batching", "wire"},
    "server": {"base", "waiting", "batching", "wire", "transport", "calls"},
    "worker": {"base", "shared_memory", "wire", "transport"},
    "client": {"base", "waiting", "batching", "wire", "transport", "calls"},
    "broker": {"base", "batching", "wire", "calls", "server"},
    "native": {"base", "waiting", "batching", "calls"},
    "cuda": {"base", "native"},
    "torch": {"base", "native", "cuda"},
}

# Each folder of the bindings, the same; module.cc may include them all.
BINDINGS = {
    "python": set(),
    "pickling": {"python"},
    "futures": {"python"},
    "batches": {"python"},
    "processes": {"python", "pickling", "futures", "batches"},
    "broker": {"python", "futures", "processes"},
    "native": {"python", "futures"},
    "torch": {"python", "native"},
    "engine": {"python", "futures", "batches", "processes", "native"},
}

# Headers from outside that belong to some levels only.
FOREIGN = {
    r"(Python\.h|pybind11/.*)": {"bindings"},
    r"(torch|ATen|c10)/.*": {"torch"},
    r"(cuda|nvrtc).*": {"cuda"},
    r"nvtx.*": {"base"},
}

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)


def includes_of_level(cpp, level, allowed):
    """Yields a line for each include that this level must not have."""
    folder = cpp / "bindings" if level == "bindings" else cpp / "service_streamer" / level
    for file in sorted(folder.rglob("*")):
        if file.suffix not in {".h", ".cc", ".cu", ".cuh"}:
            continue
        for bracket, path in INCLUDE.findall(file.read_text(encoding="utf-8")):
            where = f"{file.relative_to(cpp)} includes {path}"
            for foreign, levels in FOREIGN.items():
                if re.fullmatch(foreign, path) and level not in levels:
                    yield f"{where}: only for {', '.join(sorted(levels))}"
            if bracket == "<":
                continue
            if not (cpp / path).is_file():
                yield f"{where}: not a full path from cpp/"
            elif path.startswith("service_streamer/"):
                if path.split("/")[1] not in allowed | {level}:
                    yield f"{where}: {level} may use {', '.join(sorted(allowed)) or 'nothing'}"
            elif level != "bindings":
                yield f"{where}: the core knows no bindings"
            elif file.parent != folder:
                own = file.parent.name
                usable = BINDINGS.get(own, set())
                if path.split("/")[1] not in usable | {own}:
                    yield f"{where}: {own} may use {', '.join(sorted(usable)) or 'nothing'}"


def violations(cpp):
    """Returns a line for each wrong include or unknown folder below cpp/."""
    found = []
    for folder in sorted((cpp / "service_streamer").iterdir()):
        if folder.name in LEVELS:
            found += includes_of_level(cpp, folder.name, LEVELS[folder.name])
        else:
            found.append(f"service_streamer/{folder.name} is not a level")
    found += includes_of_level(cpp, "bindings", set(LEVELS))
    return found


def test_cpp_levels_use_only_what_is_below_them():
    assert violations(ROOT / "cpp") == []
    for table in (LEVELS, BINDINGS):
        graphlib.TopologicalSorter(table).prepare()


@pytest.mark.parametrize(
    ("file", "include", "complaint"),
    [
        ("base/a.h", '"service_streamer/batching/b.h"', "base may use nothing"),
        ("batching/b.cc", "<pybind11/pybind11.h>", "only for bindings"),
        ("batching/b.cc", "<Python.h>", "only for bindings"),
        ("batching/b.cc", "<torch/torch.h>", "only for torch"),
        ("batching/b.cc", '"b.h"', "not a full path"),
        ("batching/b.cc", '"bindings/c.h"', "the core knows no bindings"),
        ("worker/d.h", '"service_streamer/torch/e.h"', "worker may use base, shared_memory"),
        ("helpers/f.h", "<vector>", "not a level"),
        ("../bindings/python/g.h", '"bindings/futures/h.h"', "python may use nothing"),
    ],
)
def test_a_wrong_include_is_found(tmp_path, file, include, complaint):
    core = tmp_path / "service_streamer"
    for header in (
        core / "batching/b.h",
        core / "torch/e.h",
        tmp_path / "bindings/c.h",
        tmp_path / "bindings/futures/h.h",
    ):
        header.parent.mkdir(parents=True)
        header.touch()
    target = core / file
    target.parent.mkdir(exist_ok=True)
    target.write_text(f"#include {include}\n")
    (found,) = violations(tmp_path)
    assert complaint in found


# Each room of the Python package, which is a package or a module directly below it, from the bottom
# up, and the rooms that it may use. __init__ is the package itself: its public names.
ROOMS = {
    "_core": "",
    "_base": "_core",
    "_waiting": "_core _base",
    "_engine": "_core _base _waiting",
    "_streams": "_core _base _waiting _engine",
    "_placement": "_base",
    "_statistics": "_placement",
    "_streamers": "_core _base _waiting _engine _streams _statistics",
    "managed_model": "_base",
    "_models": "_core _base _waiting _engine _streams _streamers managed_model",
    "_processes": (
        "_core _base _waiting _engine _streams _placement _statistics _streamers "
        "managed_model _models"
    ),
    "_redis": (
        "_core _base _waiting _engine _streams _placement _statistics _streamers _models _processes"
    ),
    "_ray": "_core _base _waiting _engine _statistics _streamers managed_model _models _processes",
    "_from_core": "_core _base _waiting _engine _processes",
    "_torch": "",
    "torch": "_core _base _engine _placement _models _torch",
    "onnx": "_base _waiting _engine _placement torch",
    "_threads": "_core _base _waiting _engine _placement _statistics _streamers _models torch",
    "_pipeline": (
        "_core _base _waiting _engine _streams _statistics _streamers managed_model _models "
        "_processes _threads"
    ),
    "extend": "_base _engine _streamers _models",
    "hub": (
        "_core _base _waiting _engine _streams _placement _statistics _streamers _models "
        "_processes torch onnx _threads _pipeline extend"
    ),
    "__init__": (
        "_core _base _engine _streams _statistics _streamers managed_model _models _processes "
        "_redis _ray _from_core _threads _pipeline"
    ),
    "embeddings": "_base torch onnx extend __init__",
    "metrics": "_base _waiting _statistics extend hub",
    "server": "_base _streams extend hub __init__",
    "web": "_base _waiting _engine _statistics _processes _redis extend hub __init__ metrics",
    "otel": "_base _statistics _models extend hub __init__",
    "_commands": (
        "_base _waiting _engine _placement _statistics _streamers _models _processes _redis "
        "_ray torch onnx _threads hub __init__ server web otel"
    ),
    "__main__": "_commands",
    "build_torch": "_core __init__",
    "service_streamer": "_base _engine managed_model _processes _redis _threads",
}
ROOMS = {
    room.replace("__init__", ""): {each.replace("__init__", "") for each in used.split()}
    for room, used in ROOMS.items()
}

# The same for the folders of some packages.
FOLDERS = {
    "_redis": {"connection": set(), "client": {"connection"}, "gateway": {"connection"}},
    "_ray": {"replicas": set(), "owner": {"replicas"}, "client": {"owner"}},
    "hub": {"_sharing": set(), "_loading": {"_sharing"}, "_versions": {"_loading"}},
    "server": {"_http": set(), "_grpc": set()},
    "_models": {"spans": set(), "steps": set()},
    "_streamers": {"coalescing": set(), "timeline": set()},
}


@functools.cache
def arrows(folder):
    """The modules of a package, and the modules of it that each imports or names in its code."""
    files = {}
    for file in sorted([*folder.rglob("*.py"), *folder.rglob("*.pyi")]):
        parts = file.relative_to(folder.parent).with_suffix("").parts
        files[".".join(parts).removesuffix(".__init__")] = file
    return {name: set(imports(file, name, files)) for name, file in files.items()}


def imports(file, name, modules):
    package = name.split(".") if file.stem == "__init__" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*start, *filter(None, [node.module])])
            members = [f"{module}.{each.name}" for each in node.names]
            found = [each if each in modules else module for each in members]
        elif isinstance(node, ast.Call | ast.Subscript):
            found = [full_name(each, package) for each in looked_up(node)]
        else:
            continue
        yield from (each for each in found if each in modules and each != name)


def looked_up(node):
    """The names of modules that a call or a subscript gives to importlib or sys.modules."""
    if is_look_up(node):
        for each in ast.walk(node):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield each.value


def is_look_up(node):
    by = ast.unparse(node.func if isinstance(node, ast.Call) else node.value)
    return re.match(r"sys\.modules\b|(importlib\.)?import_module$|__import__$", by) is not None


def full_name(text, package):
    """The full name of a module that is named relative to a package, with dots, or in full."""
    name = text.lstrip(".")
    if name == text:
        return text
    return ".".join([*package[: len(package) + 1 - len(text) + len(name)], name])


def room_of(module):
    return next(iter(module.split(".")[1:]), "")


def wrong_arrows(folder, packages):
    """Circles of imports, and imports from one package into another that it must not use."""
    modules = arrows(folder)
    found = []
    try:
        graphlib.TopologicalSorter(modules).prepare()
    except graphlib.CycleError as error:
        found.append("circle: " + " imports ".join(reversed(error.args[1])))
    for name, used in modules.items():
        allowed = packages.get(room_of(name))
        for other in sorted(used) if allowed is not None else ():
            if room_of(other) in packages.keys() - allowed - {room_of(name)}:
                found.append(f"{name} imports {other}")
    return found


def test_python_modules_import_in_one_direction():
    folder = ROOT / "python" / "service_streamer"
    assert {room_of(name) for name in arrows(folder)} == set(ROOMS)
    graphlib.TopologicalSorter(ROOMS).prepare()
    assert wrong_arrows(folder, ROOMS) == []
    for name, folders in FOLDERS.items():
        assert {each.parent.name for each in (folder / name).glob("*/__init__.py")} == set(folders)
        assert wrong_arrows(folder / name, folders) == []


@pytest.mark.parametrize(
    ("module", "code", "complaint"),
    [
        (
            "a/one.py",
            "def f():\n    from ..b import two",
            "circle: p.a.one imports p.b.two imports ",
        ),
        ("a/one.py", "from ..b.three import x", "p.a.one imports p.b.three"),
        ("a/one.py", "import_module('..b.three', __package__)", "p.a.one imports p.b.three"),
        ("a/one.py", "sys.modules.get('p.b.three')", "p.a.one imports p.b.three"),
        ("a/one.py", "if TYPE_CHECKING:\n    import p.b.three", "p.a.one imports p.b.three"),
        ("b/three.py", "import p.b.two", "nothing"),
    ],
)
def test_a_wrong_import_is_found(tmp_path, module, code, complaint):
    files = {"__init__.py": "", "a/one.py": "", "b/two.py": "from p.a import one", "b/three.py": ""}
    files[module] = code
    for name, text in files.items():
        file = tmp_path / "p" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    found = wrong_arrows(tmp_path / "p", {"a": set(), "b": {"a"}})
    assert ("\n".join(found) or "nothing").startswith(complaint)


# Its private members belong to the rooms that may use it, too: they are its Python half.
DOORS = {"_core"}

# Private names of the standard library that objects of our classes have as well.
OF_TUPLES = {"_asdict", "_fields", "_make", "_replace"}


def private_members(tree):
    """The private names that the classes of a module define, in their body or by `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield each.name
                elif isinstance(each, ast.Assign):
                    if ast.unparse(each.targets[0]) == "__slots__":
                        yield from (getattr(part, "value", "") for part in ast.walk(each.value))
                    yield from map(ast.unparse, each.targets)
                elif isinstance(each, ast.AnnAssign):
                    yield ast.unparse(each.target)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr if ast.unparse(node.value) in ("self", "cls") else ""


def private_reads(tree):
    """Each private attribute that a module takes from an object other than `self`."""
    for node in ast.walk(tree):
        for name in names_read(node):
            if isinstance(name, str) and re.match("_[a-z]", name) and name not in OF_TUPLES:
                yield name, node


def names_read(node):
    """The attributes that an expression takes from an object, also by strings."""
    if isinstance(node, ast.Attribute):
        if ast.unparse(node.value) not in ("self", "cls", "super()", "_core"):
            yield node.attr
    elif isinstance(node, ast.Subscript) and is_dict_of_object(node.value):
        yield getattr(node.slice, "value", "")
    elif isinstance(node, ast.Call):
        by = ast.unparse(node.func).removeprefix("operator.")
        values = [getattr(each, "value", "") for each in node.args]
        if by in ("getattr", "hasattr", "setattr", "delattr"):
            yield from values[1:2]
        elif by in ("attrgetter", "methodcaller"):
            yield from values
        elif isinstance(node.func, ast.Attribute) and is_dict_of_object(node.func.value):
            yield from values[:1]


def is_dict_of_object(node):
    return re.fullmatch(r"(?!vars\(self\))vars\(.+\)|(?!self\.).+\.__dict__", ast.unparse(node))


def private_imports(node, room, modules, package):
    """The private names that an import takes from a module of another room."""
    if isinstance(node, ast.ImportFrom):
        module = full_name("." * node.level + (node.module or ""), package).rstrip(".")
        for each in (
            node.names if module in modules and room_of(module) not in {room} | DOORS else ()
        ):
            if re.match("_[a-z]", each.name) and f"{module}.{each.name}" not in modules:
                yield each.name


def own_look_ups(tree, modules, package):
    """Each call or subscript that finds a module of the package by a string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call | ast.Subscript) and is_look_up(node):
            names = {full_name(text, package) for text in looked_up(node)}
            if names & modules.keys() or re.search("__(package|name)__", ast.unparse(node)):
                yield node


def reaches(folder, packages):
    """A line for each private member of another room that is read, and each module by a string."""
    files = [*folder.rglob("*.py"), *folder.rglob("*.pyi")]
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in files}
    rooms = {file: file.relative_to(folder).with_suffix("").parts[0] for file in files}
    members = {room: set() for room in rooms.values()}
    for file, tree in trees.items():
        members[rooms[file]].update(private_members(tree))
    modules = arrows(folder)
    for file, tree in sorted(trees.items()):
        room, path = rooms[file], file.relative_to(folder)
        own = members[room].union(*(members.get(each, set()) for each in DOORS & packages[room]))
        for name, node in private_reads(tree):
            homes = sorted(each for each in members if name in members[each])
            if homes and name not in own:
                yield f"{path}:{node.lineno} {ast.unparse(node)}: of {', '.join(homes)}"
        package = [folder.name, *path.parts[:-1]]
        for node in ast.walk(tree):
            for name in private_imports(node, room, modules, package):
                yield f"{path}:{node.lineno} {ast.unparse(node)}: {name} is private"
        for node in own_look_ups(tree, modules, package):
            yield f"{path}:{node.lineno} {ast.unparse(node)}: import it"


def test_no_room_reaches_into_another():
    rooms = {**ROOMS, "__init__": set()}
    assert list(reaches(ROOT / "python" / "service_streamer", rooms)) == []


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("def f(x): return x._own", ""),
        ("def f(x): return x._theirs", "a/one.py:1 x._theirs: of b"),
        ("def _theirs(x): return x._theirs", "a/one.py:1 x._theirs: of b"),
        ("def f(x): x.y._slot = 1", "a/one.py:1 x.y._slot: of b"),
        ("def f(x): return getattr(x, '_method', None)", "a/one.py:1 getattr(x, '_method', None)"),
        ("def f(x): return hasattr(x, '_elsewhere')", ""),
        ("def f(x): return x._of_core", "a/one.py:1 x._of_core: of _core"),
        ("class C:\n    _theirs = 1\ndef f(x): return x._theirs", ""),
        ("import_module('p.b')", "a/one.py:1 import_module('p.b'): import it"),
        ("sys.modules.get(f'{__package__}.two')", "a/one.py:1 sys.modules.get("),
        ("sys.modules['numpy']", ""),
        ("def f(x): return vars(x)['_slot']", "a/one.py:1 vars(x)['_slot']: of b"),
        ("def f(x): x.y.__dict__['_slot'] = 1", "a/one.py:1 x.y.__dict__['_slot']: of b"),
        ("def f(x): return vars(x).get('_slot')", "a/one.py:1 vars(x).get('_slot'): of b"),
        ("class C:\n    def f(self): return vars(self)['_slot']", ""),
        ("f = operator.attrgetter('x', '_slot')", "a/one.py:1 operator.attrgetter('x', '_slot')"),
        ("from ..b import _help", "a/one.py:1 from ..b import _help: _help is private"),
        (
            "from p.b.three import D, _help as own",
            "a/one.py:1 from p.b.three import D, _help as own",
        ),
        ("from ..b import _four", ""),
        ("from .two import _help", ""),
        ("from .. import _core", ""),
    ],
)
def test_a_reach_is_found(tmp_path, code, complaint):
    files = {
        "a/one.py": code,
        "a/two.py": "class A:\n    def f(self):\n        self._own = 1",
        "b/__init__.py": "class B:\n    __slots__ = ('_slot',)\n    _theirs = 0",
        "b/three.py": "class D:\n    def _method(self): ...",
        "b/_four.py": "",
        "_core.pyi": "class C:\n    def _of_core(self): ...",
    }
    for name, text in files.items():
        file = tmp_path / "p" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    rooms = {"a": set(), "b": {"_core"}, "_core": set()}
    assert "\n".join(reaches(tmp_path / "p", rooms)).startswith(complaint)
    assert bool(list(reaches(tmp_path / "p", rooms))) == bool(complaint)


def test_cpp_calls_python_by_one_module():
    names = [name for name in vars(_from_core) if not name.startswith("_")]
    names.remove("annotations")
    assert sorted(_core.look_up(vars(_from_core))) == sorted(names)
    with pytest.raises(KeyError):
        _core.look_up({})
    modules = arrows(ROOT / "python" / "service_streamer")
    for file in (ROOT / "cpp").rglob("*.*"):
        named = set(re.findall(r'"(service_streamer\.[.\w]+)"', file.read_text(encoding="utf-8")))
        assert named.isdisjoint(modules), file


# What an application must not pay for by importing the package: third parties and slow modules of
# the standard library. They are imported where they are first needed.
HEAVY = ["asyncio", "gevent", "numpy", "onnxruntime", "torch", "flask", "fastapi", "redis", "rich"]
HEAVY += ["opentelemetry", "optuna", "prometheus_client", "starlette", "tqdm", "uvicorn"]
HEAVY += ["httptools", "orjson", "uvloop"]
HEAVY += ["multiprocessing", "subprocess", "socket", "typing_extensions"]

LOOK_AT_IMPORT = """
import os, sys, threading

def descriptors():
    return sorted(os.listdir("/proc/self/fd"))

before = descriptors()
import service_streamer
assert descriptors() == before, "a descriptor was opened"
assert threading.active_count() == 1, "a thread was started"
print(*[name for name in {heavy!r} if name in sys.modules])
"""


def test_import_is_light_and_does_nothing():
    done = subprocess.run(
        [sys.executable, "-c", LOOK_AT_IMPORT.format(heavy=HEAVY)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
