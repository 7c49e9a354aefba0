"""Brings the requests of the lobby to the streamers of their models, and the outputs back."""

from __future__ import annotations

import functools
import time
import weakref
from typing import TYPE_CHECKING, Any

from .._base.errors import QueueFull, StreamerClosed, StreamerError
from .._base.model_errors import detached
from .._pipeline.pipeline import Pipeline
from .._pipeline.request import Piece
from .._streamers.streamer import BaseStreamer
from ._errors import ModelLoadError, UnknownModel
from ._models import State, Version

if TYPE_CHECKING:
    from ._tracing import VersionTracing


MAX_WAITING = 65_536  # requests of a model that is being loaded


class Forwarding:
    """A base class of `Loader`. Any thread may call the methods. None blocks."""

    _closed = False
    """the hub is closed"""
    forked = False
    """this process is a forked child, which loads nothing"""
    tracer: Any = None
    """makes the spans of requests: see `service_streamer.otel`"""

    def __init__(self) -> None:
        self._drained: weakref.WeakSet[BaseStreamer] = weakref.WeakSet()

    def check_open(self) -> None:
        """Raise StreamerClosed if the hub is closed."""
        if self._closed:
            raise StreamerClosed("the hub is closed")

    def tracing_of(self, version: Version) -> VersionTracing | None:
        """Return what makes the spans of the requests of a version; None: they have none."""
        tracer = version.model.tracer or self.tracer
        return None if tracer is None else tracer.of(version)

    def _refusal(self, version: Version) -> Exception | None:
        """Return the reason why a request cannot wait for a version that is not loaded."""
        try:
            self._check_open(version)
        except StreamerError as error:
            return error
        failed = version.state is State.FAILED and time.monotonic() < version.retry_at
        if failed and version.error is not None:
            return version.error.copy()
        if len(version.waiting) >= MAX_WAITING:
            return QueueFull(f"{len(version.waiting)} requests wait for model {version.name}", 1.0)
        return None

    def _check_open(self, version: Version) -> None:
        self.check_open()
        if version.dropped:
            raise UnknownModel(f"version {version.name} is out of service")
        if self.forked:
            raise ModelLoadError(
                f"model {version.name} is not loaded, and a forked process loads none: load it "
                "before forking, or create a ModelHub in each process"
            )

    def wait_in(self, version: Version, piece: Piece) -> BaseStreamer | None:
        """Return the streamer of a version. None: the piece waits there until it is loaded.

        Raises:
            StreamerError: the piece cannot wait.
        """
        raise NotImplementedError

    def enter(self, piece: Piece) -> None:
        """Send a request to its streamer. If the model is not loaded, load it first."""
        version: Version = piece.request.alias.version  # type: ignore[attr-defined]
        tracing = piece.request.tracing  # type: ignore[attr-defined]
        if tracing is not None and version.streamer is None:
            piece.request.begin_wait(tracing.wait(piece.context))  # type: ignore[attr-defined]
        try:
            streamer = self.wait_in(version, piece)
        except Exception as error:
            moved = piece.request.alias.version is not version  # type: ignore[attr-defined]
            if moved and (version.dropped or version.is_broken):
                self.enter(piece)  # another version has taken over meanwhile
            else:
                piece.fail(error)
            return
        if streamer is not None:
            version.used = time.monotonic()
            self.forward(streamer, piece)

    def forward(self, streamer: BaseStreamer, piece: Piece) -> None:
        """Send a request to a streamer."""
        piece.request.end_wait()  # type: ignore[attr-defined]
        if piece.request.ended:
            return
        priority, tenant = piece.request.priority, piece.request.tenant
        try:
            call: Any
            if isinstance(streamer, Pipeline):  # its engine takes pieces only
                call = streamer._forward(piece.items, priority, tenant, piece.context)
            else:
                call = streamer._engine.submit_async(
                    piece.items, None, priority, tenant, piece.context
                )
            piece.entered(0, call)
            call.add_done_callback(functools.partial(self._leave, streamer, piece))
        except StreamerClosed as error:
            self._refused(streamer, piece, error)
        except BaseException as error:
            piece.fail(detached(error))

    def has_drained(self, streamer: BaseStreamer) -> bool:
        """Return True if the hub has closed the streamer, and another takes its requests."""
        return streamer in self._drained and not self._closed

    def _leave(self, streamer: BaseStreamer, piece: Piece, call: Any) -> None:
        """Answer the request: a done callback."""
        if call.cancelled():
            return  # by the request, which has ended
        if (tracing := streamer._tracing) is not None:
            for batch in call._batches():
                tracing.add_batch(batch)
        try:
            error = call.exception()
            if error is None:
                piece.arrived(call.result())
            elif isinstance(error, StreamerClosed):
                self._refused(streamer, piece, error)
            else:
                piece.fail(error)
        except BaseException as error:
            piece.fail(detached(error))

    def _refused(self, streamer: BaseStreamer, piece: Piece, error: StreamerClosed) -> None:
        # A streamer that drains answers what it has accepted. So the model has not seen this one.
        if self.has_drained(streamer):
            self.enter(piece)
        else:
            piece.fail(error)
