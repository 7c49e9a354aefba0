"""Memory that worker processes read by the number of a descriptor of their owner."""

from __future__ import annotations

import errno
import itertools
import mmap
import os
import pickle
import struct
import weakref

from ..._base.errors import StreamerClosed
from ..._models.model import Model, pack

_numbers = itertools.count(1)
_WORD = struct.Struct("=Q")


class PackedModel:
    """A pickled model for worker processes. Its number is never used again in this process.

    Args:
        model: to pickle.
        batch_size: most items of a batch.

    Raises:
        SerializationError: the model cannot be pickled. The message says what to change.
    """

    def __init__(self, model: Model, batch_size: int) -> None:
        packed = pack(model)
        self.number = next(_numbers)
        self.fd = os.memfd_create(_name(self.number))
        self._close = weakref.finalize(self, os.close, self.fd)
        with open(self.fd, "wb", closefd=False) as file:
            file.write(_WORD.pack(batch_size))
            file.write(packed)

    def close(self) -> bool:
        """Let no worker read it any more. Return False if it was closed before."""
        closes = self._close.alive
        self._close()
        return closes


def read_packed(owner: int, number: int, fd: int) -> tuple[Model, int]:
    """Return the model and the batch size of a `PackedModel`. Called in a worker process.

    Args:
        owner: the pid of the process that has it.
        number, fd: of the `PackedModel`.

    Raises:
        StreamerClosed: the owner has closed it.
        Exception: the model cannot be unpickled.
    """
    try:
        file = open(f"/proc/{owner}/fd/{fd}", "rb", opener=_open)  # noqa: SIM115
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENXIO):  # ENXIO: the number is of a socket now
            raise
        raise StreamerClosed("the model was unloaded") from None
    with file:
        if os.readlink(f"/proc/self/fd/{file.fileno()}") != f"/memfd:{_name(number)} (deleted)":
            raise StreamerClosed("the model was unloaded")
        (batch_size,) = _WORD.unpack(file.read(_WORD.size))
        return pickle.load(file), batch_size


class RunningModel:
    """The number of the model that a worker process runs; 0: none. It outlives the worker.

    Args:
        place: of the owner's object, which the worker opens. None: make the owner's.
    """

    def __init__(self, place: tuple[int, int] | None = None) -> None:
        if place is None:
            fd = os.memfd_create("service-streamer-running")
            os.ftruncate(fd, _WORD.size)
            weakref.finalize(self, os.close, fd)
            self.place = os.getpid(), fd
            self._memory = mmap.mmap(fd, _WORD.size)
        else:
            self.place = place
            with open("/proc/{}/fd/{}".format(*place), "r+b") as file:
                self._memory = mmap.mmap(file.fileno(), _WORD.size)

    @property
    def number(self) -> int:
        """The number of the `PackedModel`."""
        return int(_WORD.unpack_from(self._memory)[0])

    @number.setter
    def number(self, number: int) -> None:
        _WORD.pack_into(self._memory, 0, number)


def _name(number: int) -> str:
    return f"service-streamer-model-{number}"


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # the number may be of a named pipe now
