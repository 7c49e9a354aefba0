"""Loads and unloads the models of a hub. The page of the package tells about threads and locks."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Mapping

from ..._base.errors import RequestTimeout, StreamerClosed, StreamerError
from ..._engine import lifecycle
from ..._pipeline.request import Piece
from ..._streamers.streamer import BaseStreamer
from ..._waiting.threads import refuse_eventlet
from ..._waiting.timeouts import countdown
from .. import _log, _memory
from .._errors import ModelTooLarge, load_error
from .._models import MOVING, Model, State, Version
from .._sharing.workers import SharedWorkers
from .budget import Budget
from .making import Making
from .room import Limits

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # s between two attempts to load a model


class Loader(Budget):
    """Brings requests to the streamers of their models, which it loads and unloads.

    Any thread may call the methods. Only `drain`, `unload`, `wait` and `close` block.
    """

    def __init__(
        self,
        models: Mapping[str, Model],
        limits: Limits,
        threads: int,
        workers: SharedWorkers | None,
    ) -> None:
        refuse_eventlet()
        super().__init__(limits, threads)
        self._models = models  # their versions refer to them weakly
        self._workers = workers
        self.on_ready: Callable[[Version], None] = _ignore
        """called when a version is loaded, by a loader thread"""
        self.on_failed: Callable[[Version], None] = _ignore
        """called when a version could not be loaded, before its requests end"""
        self.observers: list[Callable[[Version, BaseStreamer], None]] = []
        """called with a version and its new streamer; may block"""
        self._begin()
        lifecycle.watch(self)

    def _begin(self) -> None:
        super()._begin()
        self._making = Making(self._workers)

    # ------------------------------------------------------------------- requests

    def wait_in(self, version: Version, piece: Piece) -> BaseStreamer | None:
        with self.lock:
            if (streamer := version.streamer) is not None:
                return streamer
            if (refused := self._refusal(version)) is not None:
                raise refused
            version.let_wait(piece)
            starts = self._wants(version)
        if starts:
            self._start(version)
        return None

    # ----------------------------------------------------------------- life cycle

    def load(self, version: Version) -> None:
        """Begin to load a version, also one whose last attempt has just failed."""
        with self.lock:
            if version.streamer is not None:
                return
            self._check_open(version)
            if version.state is State.FAILED:
                version.size = None  # measure it again
            version.wanted = True
            starts = self._wants(version)
        if starts:
            self._start(version)

    def wait(self, version: Version, timeout: float | None) -> None:
        """Block until a version is loaded.

        Raises:
            RequestTimeout: it took longer.
            ModelLoadError: it cannot be loaded.
            StreamerClosed: the hub was closed.
        """
        if not self._changed.wait_for(lambda: self._closed or version.state not in MOVING, timeout):
            raise RequestTimeout(f"model {version.name} was not loaded within {timeout} s")
        if self._closed:
            raise StreamerClosed("the hub is closed")
        if version.state is State.FAILED and version.error is not None:
            raise version.error.copy()

    def unload(self, version: Version) -> None:
        """Drain and unload a version. Block until its requests have ended."""
        while True:
            with self.lock:
                version.wanted = False
                if self.forked and version.state is State.LOADING:  # at the fork
                    version.state = State.UNLOADED
                moving = version.state in MOVING
                if ready := version.state is State.READY and not self._closed:
                    self._retire(version)
            if ready:
                self.drain(version)
            if not moving:
                return
            self._changed.wait_for(lambda: version.state not in MOVING, None)

    def drop(self, version: Version) -> None:
        """Take a version out of service: unload it soon, and forget it. Does not block.

        Its requests go to the version for which their name stands then.
        """
        with self.lock:
            if version.dropped:
                return
            version.dropped = True
        with contextlib.suppress(RuntimeError):  # at exit no thread can start
            self._drops.start(functools.partial(self._drop, version))

    def _drop(self, version: Version) -> None:
        self.unload(version)
        with self.lock:
            waiting, version.waiting = version.waiting, []
            version.model.forget(version)
        for piece in waiting:
            self.enter(piece)

    def drain(self, version: Version) -> None:
        """Close the streamer of a retired version when its requests have ended."""
        streamer = version.leaving
        assert streamer is not None
        try:
            streamer.close()
            with contextlib.suppress(StreamerError):
                version.last_stats = streamer.stats()
        finally:  # also after Ctrl-C
            with self.lock:
                version.leaving = None
                version.earlier_requests += streamer._engine.stats()["submitted"]
            del streamer  # frees the model, before another one is measured
            if not version.spec.in_processes:
                _memory.trim()
            with self.lock:
                version.state = State.UNLOADED
                self._free(version)
                wanted = bool(version.waiting or version.wanted) and not version.dropped
                starts = wanted and not self._closed and self._wants(version)
            self._notify()
            _log.unloaded(version)
            if starts:
                self._start(version)

    def close(self, drain: bool, timeout: float | None) -> None:
        """Close all streamers. Block until all requests and loads have ended."""
        left = countdown(timeout)
        with self.lock:
            self._closed = True
            loaded = [each.streamer or each.leaving for each in self._holders]
            coming = [each.coming for each in self._holders]
        self._notify()
        if self._workers is not None:
            self._workers.begin_close(drain)
        for streamer in filter(None, coming):
            streamer.close(drain=False, timeout=0)
        streamers = list(filter(None, loaded))
        for streamer in streamers:
            streamer._begin_close(drain, alone=False)
        for streamer in streamers:
            streamer.close(drain, left())
        if self._workers is not None:
            self._workers.close(0 if any(coming) else left())
        with self.lock:
            for version in self._holders:
                if version.state is State.READY:
                    version.state, version.streamer = State.UNLOADED, None
        for jobs in (self._jobs, self._drops, self._drains):
            jobs.wait_ended(left())
        self.on_ready = self.on_failed = _ignore  # methods of an object that has this one

    def _wants(self, version: Version) -> bool:
        """Note that a version is to be loaded. True: the caller has to start that."""
        if version.state not in (State.UNLOADED, State.FAILED):
            return False
        version.state = State.LOADING
        version.spec = version.next_spec
        version.tried_stamp = version.stamp
        version.wanted = False
        return True

    # ---------------------------------------------------------- the loader threads

    def _start(self, version: Version) -> None:
        """Load a version in a thread of the loader. Its state is LOADING."""
        try:
            self._jobs.start(functools.partial(self._load, version))
        except Exception as error:  # no thread can start
            self._fail(version, error)

    def _load(self, version: Version) -> None:
        _log.thrashing(version)
        try:
            streamer = self._loaded(version)
        except BaseException as error:
            self._fail(version, error)
        else:
            if not self._publish(version, streamer):
                streamer.close(drain=False, timeout=0)
                self._fail(version, StreamerClosed("the hub is closed"))

    def _loaded(self, version: Version) -> BaseStreamer:
        while True:
            self._make_room(version, loaded=False)
            note = functools.partial(self._note, version)
            begun = time.monotonic()
            try:
                streamer = self._making.make(version, note, self._worker_died)
                version.load_seconds = time.monotonic() - begun
            finally:
                note(None)
            try:
                if version.settings:
                    streamer.configure(**version.settings)
                if self._make_room(version, loaded=True):
                    return streamer
            except BaseException:
                streamer.close(drain=False, timeout=0)
                raise
            # Its size is known now. Other models are being loaded, so wait until room is certain.
            streamer.close(drain=False)
            with self.lock:
                self._free(version)

    def _note(self, version: Version, streamer: BaseStreamer | None) -> None:
        with self.lock:
            if streamer is not None and self._closed:
                raise StreamerClosed("the hub is closed")
            version.coming = streamer

    def _publish(self, version: Version, streamer: BaseStreamer) -> bool:
        """Give the requests of a version to its streamer. Return False if the hub is closed."""
        with self.lock:
            if self._closed:
                return False
            waiting, version.waiting = version.waiting, []
            version.used = time.monotonic()
            version.attempts = 0
            version.loads += 1
            version.error = None
            if (tracing := self.tracing_of(version)) is not None:
                tracing.watch(streamer)
            observers = tuple(self.observers)
            # An answer tells its caller that the model is loaded, also in a child that it forks.
            version.streamer = streamer
        for observer in observers:
            try:
                observer(version, streamer)
            except Exception as error:
                _log.not_observed(version, error)
        for piece in waiting:
            self.forward(streamer, piece)
        with self.lock:
            closed = self._closed
            if closed:  # meanwhile, and `close` closes the streamer
                version.state, version.streamer = State.UNLOADED, None
            else:
                version.state = State.READY  # from now on it can be unloaded
            moves = self._moves_apart(version)  # if its worker has died meanwhile
        self._notify()
        if closed:
            return True
        _log.loaded(version)
        if moves:
            self._drain_soon(version)
        self.on_ready(version)
        return True

    def _fail(self, version: Version, error: BaseException) -> None:
        failure = load_error(version.name, error)
        with self.lock:
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(version.attempts, 10))
            version.attempts += 1
            version.failures += 1
            fatal = isinstance(failure, ModelTooLarge)
            version.retry_at = float("inf") if fatal else time.monotonic() + pause
            version.error = failure
            closed = self._closed
        if not closed and version.is_broken:
            self.on_failed(version)  # before others see that it has failed
        with self.lock:
            waiting, version.waiting = version.waiting, []
            version.state = State.FAILED
            self._free(version)
            closed = self._closed
        self._notify()
        if not closed and not isinstance(error, StreamerClosed):  # as it is at exit
            _log.failed(version, failure)
        for piece in waiting:
            substitute: Version = piece.request.alias.version  # type: ignore[attr-defined]
            if closed:
                piece.fail(StreamerClosed("the hub was closed"))
            elif substitute.state is State.FAILED:  # its error, if it is a newer version
                piece.fail((substitute.error or failure).copy())
            else:
                self.enter(piece)

    def _reset_after_fork(self) -> None:
        self.forked = True
        for version in list(self._holders):
            version.waiting, version.wanted = [], False
            version.coming = version.leaving = None
            if version.state in MOVING:
                version.state = State.READY if version.streamer is not None else State.UNLOADED
                if version.streamer is None:
                    self._free(version)
        self._begin()


def _ignore(version: Version) -> None:
    pass
