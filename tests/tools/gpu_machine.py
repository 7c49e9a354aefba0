"""What is here, and what is missing, before the first hour on a GPU begins.

Needs nothing but Python. Fails if the steps cannot be of any use: no torch with a GPU, no compiler.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REHEARSAL = bool(os.environ.get("SERVICE_STREAMER_SIMULATED_CUDA"))
KERNELS = "no kernels are built: operators of torch run in place of them"
BUILD = "nothing can be built, unless the package and _torch_built are there"
PROGRAMS = {
    "c++": BUILD + "; and no .pt2 can be compiled",
    "cmake": BUILD,
    "ninja": BUILD,
    "make": "the step kernels fails",
    "nvcc": KERNELS + "; the step kernels is left out",
    "compute-sanitizer": "the step sanitizer is left out",
    "nvidia-cuda-mps-control": "the step mps is left out",
    "nvidia-smi": "the driver may be missing",
    "nm": "the step symbols fails",
}
MODULES = {
    "torch": "nothing can run",
    "pybind11": BUILD,
    "triton": "no .pt2 for a GPU can be compiled",
    "numpy": "the tests fail",
    "hypothesis": "the tests fail",
    "pytest": "the tests fail",
    "pytest_timeout": "the tests fail: pytest knows no option timeout",
}
FILES = {
    "Python.h": (
        [Path(sysconfig.get_path("include"), "Python.h")],
        BUILD + "; and Triton compiles nothing",
    ),
    "GoogleTest": (
        [Path("/usr/include/gtest/gtest.h"), ROOT / "build/googletest"],
        "the step kernels fails: copy the sources of GoogleTest to build/googletest",
    ),
}
QUESTIONS = (
    "nvidia-smi -L",
    "nvidia-smi",
    "nvidia-smi --query-gpu=name,driver_version,mig.mode.current,compute_mode,memory.free --format=csv",
    "nvcc --version",
    "c++ --version",
    "cmake --version",
    "make --version",
    "df -h build /tmp /dev/shm",
    "free -g",
)


def missing() -> list[str]:
    """What is missing, and the consequence."""
    found = [(name, text) for name, text in PROGRAMS.items() if shutil.which(name) is None]
    found += [
        (name, text) for name, text in MODULES.items() if importlib.util.find_spec(name) is None
    ]
    found += [
        (name, text)
        for name, (places, text) in FILES.items()
        if not any(place.exists() for place in places)
    ]
    return [f"missing: {name}. Then {text}." for name, text in found]


def look_at_torch() -> list[str]:
    """Print what torch sees. Returns what makes the hour useless."""
    import torch

    print(f"torch {torch.__version__} with CUDA {torch.version.cuda}: {torch.__file__}")
    if torch.version.cuda is None:
        return ["this torch was built without CUDA"]
    if not torch.cuda.is_available():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return [f"torch sees no GPU; CUDA_VISIBLE_DEVICES is {visible!r}"]
    print("compiled for", *torch.cuda.get_arch_list())
    for device in range(torch.cuda.device_count()):
        print(torch.cuda.get_device_properties(device))
    print("1 + 1 on the GPU:", (torch.ones(1, device="cuda:0") + 1).item())
    return []


def main() -> None:
    """Print the report; the status says whether to go on."""
    lines = missing()
    print(*lines or ["nothing is missing"], sep="\n")
    print(f"Python {sys.version}, {sys.executable}, {os.cpu_count()} cores, in {ROOT}")
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_HOME", "PYTHONPATH", "PATH"):
        print(f"{name}={os.environ.get(name)!r}")
    for command in QUESTIONS:
        if shutil.which(command.split()[0]) is not None:
            print(f"\n$ {command}", flush=True)
            subprocess.run(command, shell=True, stderr=subprocess.STDOUT, timeout=30, cwd=ROOT)
    print()
    useless = look_at_torch() if importlib.util.find_spec("torch") else ["there is no torch"]
    if useless and not REHEARSAL:
        sys.exit("\n".join([*lines, *useless]))


if __name__ == "__main__":
    main()
