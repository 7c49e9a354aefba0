"""Runs a callable on a device, and copies its arguments there."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from .._base.messages import wrong_option


def check_device(device: str | None, model: Callable[..., Any]) -> str:
    """Check the device of a callable. By default, a module runs where its first parameter is.

    Raises:
        ValueError: the device does not exist, or its type is not supported.
    """
    import torch

    if device is None:
        module = model if isinstance(model, torch.nn.Module) else torch.nn.Module()
        own = itertools.chain(module.parameters(), module.buffers())
        device = next((str(each.device) for each in own), "cpu")
    try:
        kind, index = torch.device(device).type, torch.device(device).index
    except (RuntimeError, TypeError) as error:
        raise wrong_option(
            f"device must be 'cpu' or a name like 'cuda:0', not {device!r}"
        ) from error
    if kind == "cuda":
        found = torch.cuda.device_count()  # creates no CUDA context: the worker process does that
        if (index or 0) >= found:
            raise wrong_option(f"device={device!r} does not exist: torch sees {found} GPUs")
    elif kind != "cpu":
        raise wrong_option(f"device must be 'cpu' or a name like 'cuda:0', not {device!r}")
    return str(device)


def wait_until_computed(tensor: Any) -> None:
    """Block until a tensor is computed, because its user may be on another stream."""
    if tensor.is_cuda:
        import torch

        torch.cuda.current_stream(tensor.device).synchronize()


class Placement:
    """The device of a callable in this process. The constructor moves the module there."""

    def __init__(self, device: str, moved: Callable[..., Any] | None) -> None:
        import torch

        self._device = torch.device(device)
        if isinstance(moved, torch.nn.Module):
            moved.to(self._device)
        self._copies = torch.cuda.Stream(self._device) if self._device.type == "cuda" else None
        # (event, tensors) of each copy: the tensors must not change before the event
        self._in_flight: list[tuple[Any, list[Any]]] = []

    def call(self, model: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call the callable with arguments that are on the host."""
        if self._copies is None:
            return model(*args, **kwargs)
        import torch

        with torch.cuda.device(self._device):
            moved = self._moved([*args, *kwargs.values()])
            named = dict(zip(kwargs, moved[len(args) :], strict=True))
            return model(*moved[: len(args)], **named)

    def wait(self) -> None:
        """Block until all copies to the device have ended."""
        in_flight, self._in_flight = self._in_flight, []
        for copied, _ in in_flight:
            copied.synchronize()

    def _moved(self, tensors: list[Any]) -> list[Any]:
        # On a stream of its own, beside the computation of the last batch.
        import torch

        here = torch.cuda.current_stream()
        with torch.cuda.stream(self._copies):
            try:
                moved = [tensor.to(self._device, non_blocking=True) for tensor in tensors]
            finally:  # if one fails for lack of memory, others may be in flight
                copied = torch.cuda.current_stream().record_event()
                self._in_flight.append((copied, tensors))
        here.wait_event(copied)
        for tensor in moved:
            tensor.record_stream(here)  # its memory must not be reused before this stream is done
        return moved
