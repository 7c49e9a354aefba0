"""Where a callable runs, and how its arguments come there."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any


def check_device(device: str | None, model: Callable[..., Any]) -> str:
    """Check where a callable shall run; by default a module runs where its first parameter is.

    Raises:
        ValueError: there is no such device here.
    """
    import torch

    if device is None:
        module = model if isinstance(model, torch.nn.Module) else torch.nn.Module()
        own = itertools.chain(module.parameters(), module.buffers())
        device = next((str(each.device) for each in own), "cpu")
    try:
        kind, index = torch.device(device).type, torch.device(device).index
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device must be 'cpu' or as 'cuda:0', not {device!r}") from error
    if kind == "cuda":
        found = torch.cuda.device_count()  # without a context, which worker processes make
        if (index or 0) >= found:
            raise ValueError(f"device={device!r} is not there: torch sees {found} GPUs")
    elif kind != "cpu":
        raise ValueError(f"device must be 'cpu' or as 'cuda:0', not {device!r}")
    return str(device)


def wait_until_computed(tensor: Any) -> None:
    """Block until a tensor is there: who gets it may have another stream than this thread."""
    if tensor.is_cuda:
        import torch

        torch.cuda.current_stream(tensor.device).synchronize()


class Placement:
    """One process's hold on the device of a callable. The module to be moved is moved there."""

    def __init__(self, device: str, moved: Callable[..., Any] | None) -> None:
        import torch

        self._device = torch.device(device)
        if isinstance(moved, torch.nn.Module):
            moved.to(self._device)
        self._copies = torch.cuda.Stream(self._device) if self._device.type == "cuda" else None
        # what is being copied must stay as it is until then
        self._under_way: list[tuple[Any, list[Any]]] = []

    def call(self, model: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call it with these tensors of the host."""
        if self._copies is None:
            return model(*args, **kwargs)
        import torch

        with torch.cuda.device(self._device):
            moved = self._moved([*args, *kwargs.values()])
            named = dict(zip(kwargs, moved[len(args) :], strict=True))
            return model(*moved[: len(args)], **named)

    def wait(self) -> None:
        """Block until nothing is being copied any more."""
        under_way, self._under_way = self._under_way, []
        for copied, _ in under_way:
            copied.synchronize()

    def _moved(self, tensors: list[Any]) -> list[Any]:
        # Beside what the stream of this thread still computes of the last batch.
        import torch

        here = torch.cuda.current_stream()
        with torch.cuda.stream(self._copies):
            try:
                moved = [tensor.to(self._device, non_blocking=True) for tensor in tensors]
            finally:  # without memory for one of them others may be under way
                copied = torch.cuda.current_stream().record_event()
                self._under_way.append((copied, tensors))
        here.wait_event(copied)
        for tensor in moved:
            tensor.record_stream(here)  # whose memory it may not be given back before
        return moved
