"""Checks and finds the devices of native models."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .._base.messages import wrong_option

_DEVICE = re.compile(r"cpu|cuda(:\d+)?")


def check_devices(given: str | Sequence[str]) -> tuple[str, ...]:
    """Check the names of devices, without looking for the devices.

    Raises:
        ValueError: it is not "cpu", a name like "cuda:0", or a sequence of such CUDA names.
    """
    # str() accepts torch.device objects too
    names = tuple(map(str, given)) if isinstance(given, list | tuple) else (str(given),)
    known = all(_DEVICE.fullmatch(name) for name in names)
    alone = names == ("cpu",) or "cpu" not in names
    if not names or not known or not alone or len(set(names)) < len(names):
        raise wrong_option(
            "device must be 'cpu', a name like 'cuda:0', or several different CUDA names, "
            f"not {given!r}"
        )
    return names


def find_devices(names: tuple[str, ...]) -> list[str]:
    """Find the devices and initialize CUDA if needed.

    Returns:
        The names, each with its index.

    Raises:
        ValueError: torch does not see a device, or two names mean the same device.
    """
    if names == ("cpu",):
        return ["cpu"]
    import torch

    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for name in names:
        number = int(name.partition(":")[2] or 0)
        if number >= seen:
            raise wrong_option(f"device={name!r}: torch sees {seen or 'no'} CUDA devices")
    torch.cuda.init()
    current = torch.cuda.current_device()
    found = [f"cuda:{int(name.partition(':')[2] or current)}" for name in names]
    if len(set(found)) < len(found):
        raise wrong_option(f"device={names!r} names a device twice: {', '.join(found)}")
    return found
