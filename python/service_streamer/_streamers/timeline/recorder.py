"""Recording a streamer for a while, into a file."""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Callable
from typing import BinaryIO

from ..._base import options
from ..._base.errors import AlreadyRecording, StreamerError
from ..._base.messages import wrong_option
from ..._engine.backend import Backend
from ..._waiting import greenlets
from .chrome import to_chrome

LONGEST = 3600.0  # s, a recording
MOST_EVENTS = 1 << 22
_DEFAULT_EVENTS = 500_000

_EMPTY = b'{"traceEvents": []}\n'

Wait = Callable[[float], object]
"""waits for some seconds; returns True if the result is not wanted any more"""


class Recorder:
    """A recording, which ``streamer.record`` returns: a context manager.

    The file is written at the end of the block.

    Example:
        >>> streamer = ThreadedStreamer(sorted, batch_size=64)
        >>> with streamer.record("trace.json.gz"):
        ...     outputs = streamer.predict([2, 1])
        >>> os.path.exists("trace.json.gz")
        True
    """

    def __init__(
        self,
        backend: Backend,
        name: str,
        path: str | os.PathLike[str],
        seconds: float,
        max_events: int,
    ) -> None:
        """Check the arguments.

        Args:
            backend: to record.
            name: of the streamer.
            path, seconds, max_events: as for ``streamer.record``.
        """
        self._backend = backend
        self._name = name
        self._path = os.fspath(path)
        self._seconds = _seconds(seconds)
        self._max_events = options.count("max_events", max_events)
        if self._max_events > MOST_EVENTS:
            raise wrong_option(f"max_events must be at most {MOST_EVENTS}, not {max_events!r}")
        self._number = 0
        self._pid = 0
        self._file: BinaryIO | None = None

    def __enter__(self) -> Recorder:
        if self._file is not None:
            raise RuntimeError("the recording has begun already")
        number = _start(self._backend, self._name, self._seconds, self._max_events)
        try:
            self._file = open(self._path, "wb")
        except BaseException:
            with contextlib.suppress(StreamerError):
                _finish(self._backend, number)
            raise
        self._number, self._pid = number, os.getpid()
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *raised: object) -> None:
        file, self._file = self._file, None
        if file is None or self._pid != os.getpid():
            return  # a forked child: the parent writes the file
        with file:
            lost: StreamerError | None = None
            try:
                trace = to_chrome(_finish(self._backend, self._number), self._name)
            except StreamerError as error:
                trace, lost = _EMPTY, error
            file.write(gzip.compress(trace, 5) if self._path.endswith(".gz") else trace)
        if lost is not None and exc_type is None:
            raise lost


def trace_of(backend: Backend, name: str, seconds: float, wait: Wait) -> bytes:
    """Do what `events_of` does, and return a trace."""
    events = events_of(backend, name, seconds, wait)
    return events and to_chrome(events, name)


def events_of(backend: Backend, name: str, seconds: float, wait: Wait) -> bytes:
    """Record for some seconds and return the events; ``b""`` if they are not wanted any more.

    Args:
        backend: to record.
        name: of the streamer.
        seconds: length of the recording.
        wait: is called with that length.

    Raises:
        StreamerError, ValueError, NotImplementedError: as for ``streamer.record``.
    """
    length = _seconds(seconds)
    number = _start(backend, name, length, _DEFAULT_EVENTS)
    try:
        unwanted = wait(length)
    except BaseException:
        with contextlib.suppress(StreamerError):
            _finish(backend, number)
        raise
    events = _finish(backend, number)
    return b"" if unwanted else events


def _start(backend: Backend, name: str, seconds: float, max_events: int) -> int:
    number: int = greenlets.call(backend.start_recording, seconds, max_events)
    if number == 0:
        raise AlreadyRecording(f"{name} is being recorded already: wait until that recording ends")
    return number


def _finish(backend: Backend, number: int) -> bytes:
    events: bytes = greenlets.call(backend.finish_recording, number)
    if not events:
        raise StreamerError("the recording is lost: the process that owns the streamer has ended")
    return events


def _seconds(value: float) -> float:
    seconds = options.timeout("seconds", value)
    if seconds is None or not 0 < seconds <= LONGEST:
        raise wrong_option(f"seconds must be more than 0 and at most {LONGEST:g}, not {value!r}")
    return seconds
