"""The memory of batches that torch's own functions make, and torch's errors about memory."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from .._base.model_errors import is_out_of_memory


@contextlib.contextmanager
def memory_errors() -> Iterator[None]:
    """Raise MemoryError if torch raises a RuntimeError about too little memory."""
    try:
        yield
    except RuntimeError as error:
        if type(error) is RuntimeError and is_out_of_memory(error):
            raise MemoryError(str(error)) from error
        raise


class Buffers:
    """The memory of the tensors of a batch. It is reused if nothing refers to it any more.

    Fresh memory costs more than the copy: a page fault for every 4 KiB. Several threads may call
    it. There is no lock that a forked child could find taken.

    Args:
        pinned: the memory is page-locked, for copies to a GPU.
    """

    def __init__(self, pinned: bool) -> None:
        self._pinned = pinned
        self._storages: dict[int, Any] = {}  # by the index of the tensor in the batch

    def take(self, index: int, dtype: Any, shape: Sequence[int]) -> Any:
        """Return an uninitialized tensor on the host.

        Raises:
            MemoryError: its size is larger than any memory.
            RuntimeError: there is not enough memory.
        """
        import torch

        size = dtype.itemsize
        for each in shape:
            size *= each
        if size > sys.maxsize:
            raise MemoryError(f"a batch of the shape {(*shape,)} has {size} bytes")
        # pop() is atomic: a thread that takes this tensor at the same time gets other memory.
        storage = self._storages.pop(index, None)
        if storage is not None and torch._C._storage_Use_Count(storage._cdata) > 1:
            storage = None
        if storage is None or storage.nbytes() < size:
            # It grows by at least half, so that slowly growing batches do not allocate every time.
            most = size if storage is None else max(size, storage.nbytes() * 3 // 2)
            storage = None  # free the old memory before allocating the new
            memory = torch.empty(most, dtype=torch.uint8, device="cpu", pin_memory=self._pinned)
            storage = memory.untyped_storage()
        tensor = torch.empty(0, dtype=dtype, device="cpu").set_(storage, 0, shape)
        self._storages[index] = storage
        return tensor
