"""One frame a second for all readers of ``/events``, while there are any."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

_logger = logging.getLogger("service_streamer.web")

LIFETIME = 10.0
"""Seconds after which a stream ends; its page connects again.

A web server that shuts down waits for its open responses, and cannot interrupt them.
"""
STALL = 10.0  # s that a reader may take for one frame; then its stream is dropped
RETRY = b"retry: 250\n\n"  # ms until a page connects again


class Full(Exception):
    """There are as many readers as allowed."""


class Broadcaster:
    """Makes frames in a thread that runs only while there are readers.

    A reader that is slow misses frames; nothing is queued for it. Any thread may call the methods.

    Args:
        make_frame: returns the bytes of the next frame. It may block.
        interval: seconds between two frames.
        most: the most readers.
    """

    def __init__(self, make_frame: Callable[[], bytes], interval: float, most: int) -> None:
        self._make_frame = make_frame
        self._interval = interval
        self._most = most
        self._changed = threading.Condition()
        self._readers: set[EventReader] = set()
        self._running = False
        self.frame: tuple[int, bytes] | None = None
        """the newest frame and its number; None: none so far"""

    @property
    def readers(self) -> int:
        """The number of readers."""
        return len(self._readers)

    def join(self, reader: EventReader) -> None:
        """Add a reader, and start the thread if it is the first.

        Raises:
            Full: there are as many readers as allowed.
        """
        with self._changed:
            if len(self._readers) >= self._most:
                raise Full(f"there are {self._most} readers already")
            if not self._running:
                self.frame = None
                threading.Thread(
                    target=self._run, name="service-streamer-events", daemon=True
                ).start()
                self._running = True  # not if the thread could not start
            self._readers.add(reader)

    def leave(self, reader: EventReader) -> None:
        """Remove a reader. The thread ends after the last one."""
        with self._changed:
            self._readers.discard(reader)
            self._changed.notify_all()

    def _run(self) -> None:
        number, due = 0, time.monotonic()
        while True:
            frame = None
            try:
                frame = self._make_frame()
            except Exception as error:
                about = {"error": repr(error)}
                _logger.exception("no frame for the readers of /events", extra=about)
            with self._changed:
                if frame is not None:
                    number += 1
                    self.frame = (number, frame)
                readers = tuple(self._readers)
            for reader in readers:
                try:
                    reader.wake()
                except RuntimeError:  # its event loop is closed
                    self.leave(reader)
            due = max(due + self._interval, time.monotonic())
            with self._changed:
                self._changed.wait_for(lambda: not self._readers, max(0.0, due - time.monotonic()))
                if not self._readers:
                    self._running = False
                    return


class EventReader:
    """One reader of a `Broadcaster`.

    Args:
        broadcaster: to read from.
        wake: called by the thread when there is a new frame. Must not block.
    """

    def __init__(self, broadcaster: Broadcaster, wake: Callable[[], object]) -> None:
        self._broadcaster = broadcaster
        self._seen = 0
        self._ends = time.monotonic() + LIFETIME
        self.wake = wake

    def __enter__(self) -> EventReader:
        self.join()
        return self

    def __exit__(self, *exception: object) -> None:
        self.leave()

    def join(self) -> None:
        """Begin to read. Raises Full."""
        self._broadcaster.join(self)

    def leave(self) -> None:
        """End. May be called more than once."""
        self._broadcaster.leave(self)

    def left(self) -> float:
        """Return the seconds until the stream ends."""
        return max(0.0, self._ends - time.monotonic())

    def take(self) -> bytes | None:
        """Return the newest frame if it was not taken yet; else None. Never blocks."""
        newest = self._broadcaster.frame
        if newest is None or newest[0] == self._seen:
            return None
        self._seen = newest[0]
        return newest[1]
