"""A pytest plugin that simulates two GPUs on the CPU, for a torch that was built without CUDA.

    SERVICE_STREAMER_SIMULATED_CUDA=…/simulated_cuda.so pytest -p simulated_cuda -m needs_cuda

The C++ library in this folder registers the GPUs with torch. This module replaces those functions
of ``torch.cuda`` that the tests and the package use.
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
        raise pytest.UsageError("torch is not installed, so no GPUs can be simulated")
    folder = Path(found.submodule_search_locations[0])
    cuda = re.search(r"^cuda\b.* = (.*)$", (folder / "version.py").read_text(), re.MULTILINE)
    if cuda is None:
        raise pytest.UsageError("torch/version.py does not tell if torch was built with CUDA")
    if cuda.group(1) != "None":
        pytest.exit("this torch was built with CUDA, so no GPUs are simulated", returncode=0)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # hides real GPUs from our kernels
    for name in ("libc10.so", "libtorch_cpu.so"):  # before torch looks for registered devices
        ctypes.CDLL(str(folder / "lib" / name), ctypes.RTLD_GLOBAL)
    # The package looks up functions in all that the process sees.
    library = ctypes.CDLL(os.environ["SERVICE_STREAMER_SIMULATED_CUDA"], ctypes.RTLD_GLOBAL)
    for name in ("reserved", "free", "device"):
        getattr(library, f"simulated_cuda_{name}_bytes").restype = ctypes.c_size_t
    patch_torch(library)


def patch_torch(library):
    import torch

    of_torch = torch._C
    cuda = torch.cuda
    cuda._lazy_init = cuda.init = lambda: None
    cuda.is_available = lambda: True
    cuda.device_count = lambda: library.simulated_cuda_devices()
    cuda.current_device = of_torch._accelerator_getDeviceIndex
    cuda.device = type("device", (torch.accelerator.device_index,), {
        "__init__": lambda self, device: setattr(self, "idx", torch.device(device).index or 0),
    })  # fmt: skip
    cuda.Stream = lambda device="cuda": torch.Stream(device=device)
    cuda.stream = lambda stream: stream
    cuda.current_stream = torch.accelerator.current_stream
    cuda.synchronize = torch.accelerator.synchronize
    cuda.is_initialized = lambda: True
    cuda.empty_cache = lambda: None
    cuda.get_device_name = lambda device=None: "a simulated GPU"
    cuda.mem_get_info = lambda device=0: (
        library.simulated_cuda_free_bytes(device),
        library.simulated_cuda_device_bytes(),
    )
    cuda.memory_reserved = lambda: library.simulated_cuda_reserved_bytes()
    cuda._fail_next_event = lambda: library.simulated_cuda_fail_next_event()
    cuda._last_error = lambda: library.cudaGetLastError()
    cuda._sleep = lambda cycles: library.simulated_cuda_sleep(cycles // 1_000_000)
    # No job may run when the libraries of torch are destroyed.
    for index in range(cuda.device_count()):
        atexit.register(of_torch._accelerator_synchronizeDevice, index)
    of_torch._jit_set_texpr_fuser_enabled(False)  # the fuser has no compiler for the simulated GPUs
