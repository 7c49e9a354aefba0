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

HEADER = f"{sysconfig.get_path('include')}/Python.h"
NEEDED = {
    "anything at all": ["torch"],
    "a build of the package": ["c++", "cmake", "ninja", "pybind11", HEADER],
    "a .pt2": ["c++", "triton", HEADER],
    "our kernels": ["nvcc"],
    "the step tests": ["hypothesis", "numpy", "pytest", "pytest_timeout"],
    "the step kernels": ["make", "/usr/include/gtest/gtest.h or build/googletest"],
    "the step sanitizer": ["compute-sanitizer"],
    "the step mps": ["nvidia-cuda-mps-control"],
    "the step symbols": ["nm", "readelf"],
}
COMMANDS = (
    "nvidia-smi",
    "nvidia-smi -L",
    "nvidia-smi --query-gpu=mig.mode.current,compute_mode,memory.free --format=csv",
    *("nvcc --version", "c++ --version", "cmake --version", "make --version", "df -h . /tmp"),
)


def is_here(name: str) -> bool:
    """True if there is a program, a module or a file of that name."""
    if "/" in name:
        return any(Path(each).exists() for each in name.split(" or "))
    return shutil.which(name) is not None or importlib.util.find_spec(name) is not None


def torch_sees_a_gpu() -> bool:
    import torch

    print(f"torch {torch.__version__} with CUDA {torch.version.cuda}: {torch.__file__}")
    print("CUDA_VISIBLE_DEVICES:", os.environ.get("CUDA_VISIBLE_DEVICES", "not set"))
    if torch.version.cuda is None or not torch.cuda.is_available():
        return False
    print(torch.cuda.get_device_properties(0), "; compiled for", *torch.cuda.get_arch_list())
    return (torch.ones(1, device="cuda:0") + 1).item() == 2


if __name__ == "__main__":
    print(f"Python {sys.version}: {sys.executable}; {os.cpu_count()} cores")
    for command in COMMANDS:
        print(f"\n$ {command}", flush=True)
        subprocess.run(f"timeout 20 {command} 2>&1", shell=True)
    for purpose, names in NEEDED.items():
        if missing := [name for name in names if not is_here(name)]:
            print(f"missing for {purpose}: {', '.join(missing)}", flush=True)
    useful = is_here("torch") and torch_sees_a_gpu()
    if not useful and "SERVICE_STREAMER_SIMULATED_CUDA" not in os.environ:
        sys.exit("torch sees no GPU, or there is no torch: the other steps are of no use")
