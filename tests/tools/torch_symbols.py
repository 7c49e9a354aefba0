"""Looks whether a torch has the functions that native models look up, with the same signatures.

    python tests/tools/torch_symbols.py build/symbols-2.14.1 [--runtime]

The folder is one that `pip install --target` has filled: torch, and beside it CUDA's runtime with
its headers; --runtime prints which packages those are for this torch. The tables of the libraries
are read, and one file is compiled against the headers. Nothing is loaded, so neither a GPU nor a
driver is needed. Without CUDA in that torch, CUDA's functions are left out. What of CUDA is not
beside torch is taken from the CUDA of this machine.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = tuple(ROOT / "cpp/service_streamer/torch" / name for name in ("shims.cc", "package.cc"))
LEFT_OUT = 77  # the status where headers are missing
PACKAGE = "package"  # the table of those that a package of AOTInductor has, not torch
MANGLED = {
    "_ZN2at15get_num_threadsEv": "at::get_num_threads",
    "_ZN2at15set_num_threadsEi": "at::set_num_threads",
}
HEADERS = (
    "torch/csrc/inductor/aoti_torch/c/shim.h",
    "torch/csrc/inductor/aoti_runtime/interface.h",
    "torch/csrc/stable/c/shim.h",
)

# Pointers to a class that the other side hides are the same; numbers must be equal.
PROGRAM = """
#include <type_traits>
#include "service_streamer/torch/shims.h"
{includes}

template <typename T>
constexpr bool hidden = std::is_void_v<T> || std::is_class_v<T>;

template <typename Ours, typename Theirs>
constexpr bool same_type() {{
  using A = std::remove_cv_t<Ours>;
  using B = std::remove_cv_t<Theirs>;
  if constexpr (std::is_same_v<A, B>)
    return true;
  else if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>)
    return same_type<std::remove_pointer_t<A>, std::remove_pointer_t<B>>();
  else if constexpr (std::is_integral_v<A> && std::is_enum_v<B>)
    return sizeof(A) == sizeof(B);
  else
    return hidden<A> && hidden<B>;
}}

template <typename Ours, typename Theirs>
struct Same : std::false_type {{}};
template <typename R, typename... A, typename S, typename... B>
  requires(sizeof...(A) == sizeof...(B))
struct Same<R (*)(A...), S (*)(B...)>
    : std::bool_constant<same_type<R, S>() && (same_type<A, B>() && ...)> {{}};

using namespace service_streamer::torch_backend;
{assertions}
"""


@dataclass(frozen=True)
class Function:
    """A function that is looked up, and the pointer that keeps it."""

    table: str
    """``Shims``, ``CudaShims`` or `PACKAGE`"""
    name: str
    type: str
    """type of the pointer, in C++"""
    needed: bool = True


def looked_up() -> list[Function]:
    """The functions that our sources look up."""
    shims, package = (path.read_text() for path in SOURCES)
    found = []
    for table, body in re.findall(r"^(\w+) find_\w*shims\(\) \{(.*?)^\}", shims, re.M | re.S):
        for if_there, member, name in re.findall(r'find(_if_there)?\(found\.(\w+), "(\w+)"', body):
            found.append(Function(table, name, f"decltype({table}::{member})", not if_there))
    types = {
        pointer: f"std::int32_t (*)({parameters})".replace("Container", "void*")
        for pointer, parameters in re.findall(r"std::int32_t \(\*(\w+)\)\(([^()]*)\)", package)
    }
    for pointer, needed, name in re.findall(
        r'(\w+)(?:(,)|\)>\(dlsym\(library_,) "(AOTI\w+)"\)', re.sub(r"\(\s+", "(", package)
    ):
        found.append(Function(PACKAGE, name, types[pointer], bool(needed)))
    return found


def output(*command: object) -> str:
    """What a command prints."""
    return subprocess.run(
        [str(each) for each in command], check=True, capture_output=True, text=True
    ).stdout


def exported(library: Path) -> set[str]:
    """The names that others can look up in a library."""
    lines = output("nm", "--dynamic", "--defined-only", library).splitlines()
    return {line.split()[-1].partition("@")[0] for line in lines if line}


def homes() -> list[Path]:
    """Where this machine may have CUDA."""
    found = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    if nvcc := shutil.which("nvcc"):
        found.insert(2, str(Path(nvcc).resolve().parents[1]))
    return [Path(home) for home in found if home]


def with_needed(library: Path, folder: Path) -> list[Path]:
    """The library, and those it needs as far as they are there: where dlsym() looks."""
    ours = [path for home in reversed(homes()) for path in home.glob("lib*/libcudart.so*")]
    there = {path.name: path for path in (*ours, *folder.rglob("*.so*"))}
    found = [library]
    for each in found:
        for name in re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "--dynamic", each)):
            if name in there and there[name] not in found:
                found.append(there[name])
    return found


def missing(functions: Iterable[Function], folder: Path) -> list[str]:
    """The functions that the libraries do not have, as sentences."""
    problems = []
    for table, library in (("Shims", "libtorch_cpu.so"), ("CudaShims", "libtorch_cuda.so")):
        if wanted := [each.name for each in functions if each.table == table and each.needed]:
            libraries = with_needed(folder / "torch/lib" / library, folder)
            names = set().union(*map(exported, libraries))
            problems += [
                f"{library} has no {name}, nor has a library that it needs"
                for name in wanted
                if name not in names
            ]
    return problems


def left_out(functions: Iterable[Function], folder: Path) -> list[str]:
    """The names of those that are not needed, and that this torch does not declare."""
    declared = "".join((folder / "torch/include" / name).read_text() for name in HEADERS)
    unneeded = [each.name for each in functions if not each.needed]
    return [name for name in unneeded if not re.search(rf"\b{name}\b", declared)]


def of_cuda(folder: Path) -> list[Path]:
    """The folders with CUDA's headers."""
    return [*sorted(folder.glob("nvidia/*/include")), *(home / "include" for home in homes())]


def different(functions: Iterable[Function], folder: Path) -> list[str]:
    """What a compiler says against our signatures, with torch's headers and those of CUDA."""
    folders = [ROOT / "cpp", folder / "torch/include"]
    includes = [*HEADERS, "ATen/Parallel.h"]
    if any(each.table == "CudaShims" for each in functions):
        folders += of_cuda(folder)
        includes.append("cuda_runtime_api.h")
    assertions = ["struct Weight;"]  # of the types of a package
    older = left_out(functions, folder)
    for each in functions:
        if each.name not in older:
            theirs = f"decltype(&{MANGLED.get(each.name, each.name)})"
            text = f"{each.name} has another signature"
            assertions.append(f'static_assert(Same<{each.type}, {theirs}>::value, "{text}");')
    program = PROGRAM.format(
        includes="\n".join(f"#include <{name}>" for name in includes),
        assertions="\n".join(assertions),
    )
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "signatures.cc"
        source.write_text(program)
        command = ["c++", "-std=c++20", "-fsyntax-only", "-w", "-DUSE_CUDA", str(source)]
        command += [f"-I{each}" for each in folders]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return []
    return [line for line in done.stderr.splitlines() if "error:" in line] or [done.stderr]


def runtime(metadata: str) -> list[str]:
    """The packages with CUDA's runtime and all headers of it, by the metadata of torch."""
    if found := re.search(r"cuda-toolkit\[[\w,]*\]==([\d.]+)", metadata):
        return [f"cuda-toolkit[crt,cudart]=={found[1]}"]
    if found := re.search(r"nvidia-cuda-runtime-cu12==((\d+\.\d+)\.\d+)", metadata):
        return [f"nvidia-cuda-runtime-cu12=={found[1]}", f"nvidia-cuda-nvcc-cu12=={found[2]}.*"]
    return []


def main() -> None:
    """Prints what is wrong, or that nothing is."""
    folder = Path(sys.argv[1]).resolve()
    if "--runtime" in sys.argv[2:]:
        (metadata,) = folder.glob("torch-*.dist-info/METADATA")
        print(*runtime(metadata.read_text()))
        return
    for tool in ("nm", "readelf", "c++"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is not installed: {shlex.join(sys.argv)} needs it")
    with_cuda = (folder / "torch/lib/libtorch_cuda.so").exists()
    for name in ("cuda_runtime_api.h", "crt/host_defines.h") if with_cuda else ():
        if not any((each / name).exists() for each in of_cuda(folder)):
            print(f"left out: there is no {name} of CUDA; CUDA_HOME may say where it is")
            sys.exit(LEFT_OUT)
    functions = [each for each in looked_up() if with_cuda or each.table != "CudaShims"]
    problems = missing(functions, folder) + different(functions, folder)
    version = re.search(r"__version__ = '(.*)'", (folder / "torch/version.py").read_text())
    torch = f"torch {version[1] if version else '?'} {'with' if with_cuda else 'without'} CUDA"
    if problems:
        sys.exit("\n".join([f"{torch}:", *problems]))
    older = left_out(functions, folder)
    without = f"; it is older than {' and '.join(older)}" if older else ""
    print(f"{torch}: {len(functions) - len(older)} functions have our signatures{without}")


if __name__ == "__main__":
    main()
