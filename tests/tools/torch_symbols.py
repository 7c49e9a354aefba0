"""Looks whether a torch has the functions that native models look up, with the same signatures.

    python tests/tools/torch_symbols.py build/torch [--install-runtime]

The folder is one that `pip install --target` has filled: torch, and beside it the packages of CUDA.
Reads the tables of the libraries and compiles one file against the headers; nothing is loaded, so
no GPU and no driver are needed. Without CUDA in that torch, CUDA's functions are left out.
With --install-runtime, CUDA's runtime and its headers are put there first, as torch requires them.
"""

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "cpp/service_streamer/torch/shims.cc"
MANGLED = {
    "_ZN2at15get_num_threadsEv": "at::get_num_threads",
    "_ZN2at15set_num_threadsEi": "at::set_num_threads",
}
HEADERS = ("torch/csrc/inductor/aoti_torch/c/shim.h", "torch/csrc/stable/c/shim.h")

# Pointers to whatever the other side keeps to itself are the same; numbers must be equal.
PROGRAM = """
#include <type_traits>
#include "service_streamer/torch/shims.h"
{includes}

template <typename Ours, typename Theirs>
constexpr bool same_type() {{
  using A = std::remove_cv_t<Ours>;
  using B = std::remove_cv_t<Theirs>;
  if constexpr (std::is_same_v<A, B>) return true;
  else if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>)
    return same_type<std::remove_pointer_t<A>, std::remove_pointer_t<B>>();
  else if constexpr (std::is_enum_v<B> && std::is_integral_v<A>) return sizeof(A) == sizeof(B);
  else return (std::is_void_v<A> || std::is_class_v<A>) && (std::is_void_v<B> || std::is_class_v<B>);
}}

template <typename Ours, typename Theirs>
struct Same : std::false_type {{}};
template <typename R, typename... A, typename S, typename... B>
struct Same<R (*)(A...), S (*)(B...)> {{
  static constexpr bool value = [] {{
    if constexpr (sizeof...(A) == sizeof...(B)) return same_type<R, S>() && (same_type<A, B>() && ...);
    else return false;
  }}();
}};

using namespace service_streamer::torch_backend;
{assertions}
"""


@dataclass(frozen=True)
class Function:
    """A function that is looked up, and the member of Shims or CudaShims that keeps it."""

    table: str
    member: str
    name: str
    needed: bool

    @property
    def of_cuda(self) -> bool:
        return self.table == "CudaShims"


def looked_up(source: str) -> list[Function]:
    """The functions that shims.cc looks up."""
    found = []
    for table, body in re.findall(r"^(\w+) find_\w*shims\(\) \{(.*?)^\}", source, re.M | re.S):
        for if_there, member, name in re.findall(r'find(_if_there)?\(found\.(\w+), "(\w+)"', body):
            found.append(Function(table, member, name, not if_there))
    return found


def output(*command: object) -> str:
    return subprocess.run(
        [str(each) for each in command], check=True, capture_output=True, text=True
    ).stdout


def defined(library: Path) -> set[str]:
    """The names that a library exports."""
    lines = output("nm", "--dynamic", "--defined-only", library).splitlines()
    return {line.split()[-1].partition("@")[0] for line in lines if line}


def with_needed(library: Path, folder: Path) -> list[Path]:
    """The library, and those it needs as far as they are in the folder: where dlsym() looks."""
    there = {path.name: path for path in folder.rglob("*.so*")}
    found, waiting = [], [library]
    while waiting:
        found.append(waiting.pop(0))
        for name in re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "--dynamic", found[-1])):
            if name in there and there[name] not in found + waiting:
                waiting.append(there[name])
    return found


def missing(functions: list[Function], folder: Path) -> list[str]:
    """The functions that the libraries do not have, as sentences."""
    problems = []
    for cuda, name in ((False, "libtorch_cpu.so"), (True, "libtorch_cuda.so")):
        wanted = [each for each in functions if each.of_cuda is cuda]
        if wanted:
            libraries = with_needed(folder / "torch/lib" / name, folder)
            names = set().union(*map(defined, libraries))
            problems += [
                f"{name}, with what it needs, has no {each.name}"
                for each in wanted
                if each.needed and each.name not in names
            ]
    return problems


def different(functions: list[Function], folder: Path) -> list[str]:
    """What a compiler says against our signatures, with torch's headers and those of CUDA."""
    include = folder / "torch/include"
    declared = "".join((include / name).read_text() for name in HEADERS)
    folders, includes = [ROOT / "cpp", include], [*HEADERS, "ATen/Parallel.h"]
    if any(each.of_cuda for each in functions):
        # CUDA's headers may lack a part that is in a package of its own.
        folders += sorted(folder.glob("nvidia/*/include"))
        folders += [path for path in (Path("/usr/local/cuda/include"),) if path.exists()]
        includes.append("cuda_runtime_api.h")
    assertions = []
    for each in functions:
        theirs = MANGLED.get(each.name, each.name)
        if "torch_" in theirs and not each.needed and not re.search(rf"\b{theirs}\b", declared):
            continue  # of a later torch
        assertions.append(
            f"static_assert(Same<decltype({each.table}::{each.member}), decltype(&{theirs})>::value,"
            f' "{each.name} has another signature");'
        )
    program = PROGRAM.format(
        includes="\n".join(f"#include <{name}>" for name in includes),
        assertions="\n".join(assertions),
    )
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "signatures.cc"
        source.write_text(program)
        done = subprocess.run(
            [
                *("c++", "-std=c++20", "-fsyntax-only", "-w", "-DUSE_CUDA"),
                *(f"-I{each}" for each in folders),
                source,
            ],
            capture_output=True,
            text=True,
        )
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
    for tool in ("nm", "readelf", "c++"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is not installed: {shlex.join(sys.argv)} needs it")
    if "--install-runtime" in sys.argv[2:]:
        (metadata,) = folder.glob("torch-*.dist-info/METADATA")
        if packages := runtime(metadata.read_text()):
            pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder)]
            subprocess.run([*pip, *packages], check=True)
    functions = looked_up(SOURCE.read_text())
    with_cuda = (folder / "torch/lib/libtorch_cuda.so").exists()
    functions = [each for each in functions if with_cuda or not each.of_cuda]
    problems = missing(functions, folder) + different(functions, folder)
    version = re.search(r"__version__ = '(.*)'", (folder / "torch/version.py").read_text())
    torch = f"torch {version[1] if version else '?'} {'with' if with_cuda else 'without'} CUDA"
    if problems:
        sys.exit("\n".join([f"{torch}:", *problems]))
    print(f"{torch}: {len(functions)} functions are there, with our signatures")


if __name__ == "__main__":
    main()
