"""What is here, and what is missing, before the first hour on a GPU: its first step.

Needs nothing but Python. Fails where the other steps are of no use.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

KERNELS = "no kernels, and operators of torch run in place of them"
TESTS = "no tests in Python"
BUILD = "no build of the package and its module"
PROGRAMS = {
    "c++": f"{BUILD}, and no .pt2",
    "cmake": BUILD,
    "ninja": BUILD,
    "make": "no step kernels",
    "nvcc": KERNELS,
    "compute-sanitizer": "no step sanitizer",
    "nvidia-cuda-mps-control": "no step mps",
    "nvidia-smi": "perhaps no driver",
    "nm": "no step symbols",
}
MODULES = {"torch": "nothing at all", "pybind11": BUILD, "triton": "no .pt2"}
MODULES |= dict.fromkeys(("hypothesis", "numpy", "pytest", "pytest_timeout"), TESTS)
HEADERS = {
    f"{sysconfig.get_path('include')}/Python.h": f"{BUILD}, and no .pt2",
    "/usr/include/gtest/gtest.h": "no step kernels, unless GoogleTest is in build/googletest",
}
COMMANDS = (
    "nvidia-smi",
    "nvidia-smi -L",
    "nvidia-smi --query-gpu=mig.mode.current,compute_mode,memory.free --format=csv",
    *("nvcc --version", "c++ --version", "cmake --version", "make --version", "df -h . /tmp"),
)


def torch_sees_a_gpu() -> bool:
    import torch

    print(f"torch {torch.__version__} with CUDA {torch.version.cuda}: {torch.__file__}")
    print("CUDA_VISIBLE_DEVICES:", os.environ.get("CUDA_VISIBLE_DEVICES", "not set"))
    if torch.version.cuda is None or not torch.cuda.is_available():
        return False
    print(torch.cuda.get_device_properties(0), "; compiled for", *torch.cuda.get_arch_list())
    return (torch.ones(1, device="cuda:0") + 1).item() == 2


def main() -> None:
    lacks = [(name, text) for name, text in PROGRAMS.items() if shutil.which(name) is None]
    lacks += [(name, text) for name, text in MODULES.items() if not importlib.util.find_spec(name)]
    lacks += [(name, text) for name, text in HEADERS.items() if not Path(name).exists()]
    print(f"Python {sys.version}: {sys.executable}; {os.cpu_count()} cores")
    for command in COMMANDS:
        print(f"\n$ {command}", flush=True)
        subprocess.run(f"timeout 20 {command} 2>&1", shell=True)
    useful = importlib.util.find_spec("torch") is not None and torch_sees_a_gpu()
    print(*(f"missing: {name}. Then there is {text}." for name, text in lacks), sep="\n")
    if not useful and "SERVICE_STREAMER_SIMULATED_CUDA" not in os.environ:
        sys.exit("torch sees no GPU, or there is no torch: what follows is of no use")


if __name__ == "__main__":
    main()
