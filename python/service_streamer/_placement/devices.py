"""The environment variables that set the GPU and the number of threads of a worker process.

They are set before the worker imports user code, because frameworks read them once, when they are
imported.
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .._base.messages import wrong_option
from .places import Place

Device = int | str

# OMP_NUM_THREADS comes first: the other libraries use it where their own variable is not set.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)

# The values of CUDA_VISIBLE_DEVICES: numbers, "GPU-…" (a prefix of the UUID is enough), "MIG-…".
_DEVICE = re.compile(r"\d+|GPU-[0-9a-fA-F-]+|MIG-[0-9a-zA-Z/-]+")


def check_devices(devices: Any) -> tuple[Device, ...] | None:
    """Validate `cuda_devices`.

    Raises:
        TypeError: `devices` is not a sequence.
        ValueError: `devices` is empty, or an element is not a device.
    """
    if devices is None:
        return None
    if not isinstance(devices, Sequence) or isinstance(devices, str | bytes):
        if isinstance(devices, str | bytes) or not hasattr(devices, "__iter__"):
            raise wrong_option(
                f"cuda_devices must be a sequence such as (0, 1), not {devices!r}", TypeError
            )
        devices = list(devices)  # a numpy range, a set, a generator
    if not devices:
        raise wrong_option(
            "cuda_devices must name at least one device, not (); use None to leave the choice to "
            'the environment, or ("",) to give the workers no GPU'
        )
    return tuple(_check_device(device) for device in devices)


def _check_device(device: Any) -> Device:
    if isinstance(device, str):
        if device == "" or all(_DEVICE.fullmatch(part) for part in device.split(",")):
            return device
    elif not isinstance(device, bool):
        try:
            number = operator.index(device)
        except TypeError:
            pass
        else:
            if number >= 0:
                return number
    raise wrong_option(
        'cuda_devices must hold GPU numbers, or strings such as "0", "GPU-…", "MIG-…", '
        f"not {device!r}"
    )


def device_of(devices: tuple[Device, ...] | None, worker: int) -> Device | None:
    """Return the device of worker number `worker`, assigned round-robin."""
    return None if devices is None else devices[worker % len(devices)]


def environment(
    device: Device | None, place: Place, inherited: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the environment variables to add for a worker.

    The variables of the user stay, unless the user has chosen the number of threads.
    """
    own = {} if device is None else {"CUDA_VISIBLE_DEVICES": str(device)}
    names = [name for name in THREAD_VARIABLES if place.is_chosen or name not in inherited]
    if place.is_chosen or "OMP_NUM_THREADS" not in inherited:
        own.update(dict.fromkeys(names, str(place.threads)))
    return own
