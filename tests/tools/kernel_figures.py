"""Writes how many registers each CUDA kernel needs into the page of the kernels.

    CUDA_HOME=build/nvcc/nvidia/cu13 .venv/bin/python tests/tools/kernel_figures.py

Compiles the kernels for each GPU that the build compiles for, and reads what ptxas reports. Fails
if a kernel needs a stack, which would be in the memory of the GPU. The compiler is found where
CMake looks for it; `make test-kernels` installs the one above. No GPU is needed.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "cpp/service_streamer/cuda/README.md"
TABLE = re.compile(r"^\| registers, by nvcc (?P<version>\S+) \|.*\n(\|.*\n)+", re.M)
REPORT = re.compile(
    r"Compiling entry function '(?P<kernel>\w+)' for 'sm_(?P<gpu>\d+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<more>[^\n]*)",
    re.S,
)


class Figures(NamedTuple):
    """What ptxas reports of a kernel. Only registers are not in memory."""

    registers: int
    stack: int
    spilled: int
    shared: int
    """bytes"""


def nvcc() -> str | None:
    """The compiler, or None if there is none."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    folders = [f"{home}/bin" for home in homes if home]
    return shutil.which(
        "nvcc", path=os.pathsep.join([*folders, os.environ["PATH"], "/usr/local/cuda/bin"])
    )


def version(compiler: str) -> str:
    """The compiler's, as 13.0.88."""
    text = subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True)
    return re.search(r"V([\d.]+)", text.stdout)[1]  # type: ignore[index]


def read(report: str) -> dict[str, dict[int, Figures]]:
    """The figures of each kernel for each GPU, by the names in the source."""
    found: dict[str, dict[int, Figures]] = {}
    for each in REPORT.finditer(report):
        name = subprocess.run(["c++filt", each["kernel"]], capture_output=True, text=True).stdout
        kernel = re.sub(r".*?(\w+)<(?:.*::)?([\w ]+)>\(.*", r"\1<\2>", name.strip())
        shared = re.search(r"(\d+) bytes smem", each["more"])
        found.setdefault(kernel, {})[int(each["gpu"])] = Figures(
            int(each["registers"]),
            int(each["stack"]),
            int(each["stores"]) + int(each["loads"]),
            int(shared[1]) if shared else 0,
        )
    return found


def figures(compiler: str) -> dict[str, dict[int, Figures]]:
    """The figures of all kernels, compiled now."""
    report = ""
    with tempfile.TemporaryDirectory() as folder:
        for source in sorted(PAGE.parent.glob("*.cu")):
            command = [compiler, "-std=c++20", "-arch=all-major", "--threads=0", "-Xptxas=-v"]
            command += [f"-I{ROOT / 'cpp'}", "-fatbin", str(source), "-o", f"{folder}/compiled"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError(f"{source.name} cannot be compiled:\n{done.stdout}{done.stderr}")
            report += done.stdout + done.stderr
    return read(report)


def in_memory(found: dict[str, dict[int, Figures]]) -> list[str]:
    """The kernels that need more than registers, as sentences."""
    return [
        f"{kernel} for sm_{gpu}: stack {each.stack}, spilled {each.spilled}, shared {each.shared}"
        for kernel, of_gpu in found.items()
        for gpu, each in of_gpu.items()
        if each.stack or each.spilled or each.shared
    ]


def table(found: dict[str, dict[int, Figures]], of_version: str) -> str:
    """The table of the page."""
    gpus = sorted({gpu for of_gpu in found.values() for gpu in of_gpu})
    head = [f"registers, by nvcc {of_version}", *(f"sm_{gpu}" for gpu in gpus)]
    rows = [head]
    for kernel, of_gpu in sorted(found.items()):
        rows.append([f"`{kernel}`", *(str(of_gpu[gpu].registers) for gpu in gpus)])
    lines = [f"| {' | '.join(row)} |\n" for row in rows]
    return "".join([lines[0], "|---" * len(head), "|\n", *lines[1:]])


def main() -> None:
    """Writes the table."""
    compiler = nvcc() or sys.exit(
        "there is no nvcc: set CUDA_HOME, to build/nvcc/nvidia/cu13 after `make test-kernels`"
    )
    found = figures(compiler)
    if problems := in_memory(found):
        sys.exit("\n".join(problems))
    written, text = PAGE.read_text(), table(found, version(compiler))
    PAGE.write_text(TABLE.sub(lambda _: text, written))


if __name__ == "__main__":
    main()
