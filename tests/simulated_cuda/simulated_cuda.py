"""A plugin of pytest: a torch that was built without CUDA sees two GPUs, which the CPU plays.

    SERVICE_STREAMER_SIMULATED_CUDA=…/simulated_cuda.so pytest -p simulated_cuda -m needs_cuda

The library beside this file registers them with torch's core. What torch's Python asks its own
module for CUDA is answered here, as far as the tests and the package query for it.
"""

import atexit
import ctypes
import importlib.util
import os
import re
from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_configure():
    found = importlib.util.find_spec("torch")
    if found is None:
        raise pytest.UsageError("there is no torch to simulate GPUs for")
    folder = Path(found.submodule_search_locations[0])
    cuda = re.search(r"^cuda\b.* = (.*)$", (folder / "version.py").read_text(), re.MULTILINE)
    if cuda is None:
        raise pytest.UsageError("torch does not say whether it was built with CUDA")
    if cuda.group(1) != "None":
        pytest.exit("this torch was built with CUDA: no GPU is simulated for it", returncode=0)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # no kernel of ours finds a real one
    for name in ("libc10.so", "libtorch_cpu.so"):  # before torch asks for what is registered
        ctypes.CDLL(str(folder / "lib" / name), ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(os.environ["SERVICE_STREAMER_SIMULATED_CUDA"])
    library.simulated_cuda_reserved_bytes.restype = ctypes.c_size_t
    answer_torch(library)


def answer_torch(library):
    import torch

    of_torch = torch._C
    cuda = torch.cuda
    cuda._lazy_init = cuda.init = lambda: None
    cuda.is_available = lambda: True
    cuda.device_count = lambda: library.simulated_cuda_devices()
    cuda.current_device = of_torch._accelerator_getDeviceIndex
    cuda.device = lambda device: torch.accelerator.device_index(torch.device(device).index or 0)
    cuda.Stream = lambda device="cuda": torch.Stream(device=device)
    cuda.stream = lambda stream: stream
    cuda.current_stream = torch.accelerator.current_stream
    cuda.synchronize = torch.accelerator.synchronize
    cuda.memory_reserved = lambda: library.simulated_cuda_reserved_bytes()
    cuda._sleep = lambda cycles: library.simulated_cuda_sleep(cycles // 1_000_000)
    # Nothing is under way once torch's library ends its own life.
    for index in range(cuda.device_count()):
        atexit.register(of_torch._accelerator_synchronizeDevice, index)
    of_torch._jit_set_texpr_fuser_enabled(False)  # it has no compiler for them
