"""Loads and unloads the models of a hub. The page of the package tells about threads and locks."""

from __future__ import annotations

import contextlib
import functools
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..._base.errors import QueueFull, RequestTimeout, StreamerClosed, StreamerError
from ..._engine import lifecycle
from ..._pipeline.request import Piece
from ..._streamers.streamer import Component
from ..._waiting.threads import Condition, original, refuse_eventlet
from ..._waiting.timeouts import countdown
from ...extend import BaseStreamer, view_of
from .. import _forwarding, _log, _memory
from .._errors import ModelLoadError, ModelTooLarge, NoParameters, UnknownModel, load_error
from .._models import MOVING, Model, State, Version
from .._sharing.streamer import SharedStreamer
from .._sharing.workers import SharedWorkers
from . import budget as _budget
from .budget import Budget
from .jobs import Jobs
from .limits import Limits
from .making import Making

if TYPE_CHECKING:
    from .._status import VersionView
    from .._tracing import HubTracing, VersionTracing

MAX_WAITING = 65_536  # requests of a model that is being loaded
MAX_DRAINS = 256  # versions that are drained at the same time, each by a thread
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # s between two attempts to load a model


class Loader:
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
        self.models = models
        """the models by name; their versions refer to them weakly"""
        self._workers = workers
        self._max_threads = threads
        self.on_ready: Callable[[Version], None] = _ignore
        """called when a version is loaded, by a loader thread"""
        self.on_failed: Callable[[Version], None] = _ignore
        """called when a version could not be loaded, before its requests end"""
        self.after_failure: Callable[[], None] = _nothing
        """called after that, when the state of the version says so"""
        self.observers: list[Callable[[VersionView, BaseStreamer], None]] = []
        """called with a version and its new streamer; may block"""
        self.tracing: HubTracing | None = None
        """makes the spans of requests; None: they have none, unless their model has one"""
        self.closed = False
        """the hub is closed"""
        self.forked = False
        """this process is a forked child, which loads nothing"""
        self.budget = Budget(limits)
        """the versions that hold room; `lock` guards it"""
        self._drained: weakref.WeakSet[BaseStreamer] = weakref.WeakSet()
        self._coming: dict[Version, Any] = {}
        """the loads that are under way: their streamers, or what makes their environments"""
        self._begin()
        lifecycle.watch(self)

    def _begin(self) -> None:
        """Make the locks and the threads, also in a forked child."""
        self.lock = original("_thread", "allocate_lock")()
        """guards the models, the versions, and the members of the loader"""
        self._jobs = Jobs(self._max_threads, "service-streamer-loader")
        self._installs = Jobs(self._max_threads, "service-streamer-install")
        self._drains = Jobs(MAX_DRAINS, "service-streamer-unload")
        self._drops = Jobs(MAX_DRAINS, "service-streamer-drop")  # these wait for loads
        self._changes = 0
        self._changed = Condition()
        self._making = Making(self._workers)

    # ------------------------------------------------------------------- requests

    def enter(self, piece: Piece) -> None:
        """Send a request to its streamer. If the model is not loaded, load it first."""
        version: Version = piece.request.alias.version  # type: ignore[attr-defined]
        tracing = piece.request.tracing  # type: ignore[attr-defined]
        if tracing is not None and version.streamer is None:
            piece.request.begin_wait(tracing.tracer.wait(piece.context))  # type: ignore[attr-defined]
        try:
            streamer = self._wait_in(version, piece)
        except Exception as error:
            moved = piece.request.alias.version is not version  # type: ignore[attr-defined]
            if moved and (version.dropped or version.is_broken):
                self.enter(piece)  # another version has taken over meanwhile
            else:
                piece.fail(error)
            return
        if streamer is not None:
            version.used = time.monotonic()
            self._forward(version, streamer, piece)

    def _forward(self, version: Version, streamer: BaseStreamer, piece: Piece) -> None:
        """Send a request to the streamer of a version. Its done callback answers the request."""
        try:
            version.check(piece.items)
        except NoParameters as error:
            piece.fail(error)
        else:
            _forwarding.forward(streamer, piece, self._refused)

    def has_drained(self, streamer: BaseStreamer) -> bool:
        """Return True if the hub has closed the streamer, and another takes its requests."""
        return streamer in self._drained and not self.closed

    def tracing_of(self, version: Version) -> VersionTracing | None:
        """Return what makes the spans of the requests of a version; None: they have none."""
        tracing = version.model.tracing or self.tracing
        return None if tracing is None else tracing.of(version)

    def check_open(self) -> None:
        """Raise StreamerClosed if the hub is closed."""
        if self.closed:
            raise StreamerClosed("the hub is closed")

    def _wait_in(self, version: Version, piece: Piece) -> BaseStreamer | None:
        """Return the streamer of a version. None: the piece waits there until it is loaded.

        Raises:
            StreamerError: the piece cannot wait.
        """
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

    def _refused(self, streamer: BaseStreamer, piece: Piece, error: StreamerClosed) -> None:
        # A streamer that drains answers what it has accepted. So the model has not seen this one.
        if self.has_drained(streamer):
            self.enter(piece)
        else:
            piece.fail(error)

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
        if not self._changed.wait_for(lambda: self.closed or version.state not in MOVING, timeout):
            raise RequestTimeout(f"model {version.name} was not loaded within {timeout:g} s")
        if self.closed:
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
                if ready := version.state is State.READY and not self.closed:
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
                counts = view_of(streamer).counts
                version.earlier.update({name: counts[name] for name in ("submitted", "failed")})
            del streamer  # frees the model, before another one is measured
            if version.spec.has_modules:
                _memory.give_back()  # modules are in cycles
            elif not version.spec.in_processes:
                _memory.trim()
            with self.lock:
                version.state = State.UNLOADED
                self.budget.free(version)
                wanted = bool(version.waiting or version.wanted) and not version.dropped
                starts = wanted and not self.closed and self._wants(version)
            self._notify()
            _log.unloaded(version)
            if starts:
                self._start(version)

    def close(self, drain: bool, timeout: float | None) -> None:
        """Close all streamers. Block until all requests and loads have ended."""
        left = countdown(timeout)
        with self.lock:
            self.closed = True
            loaded = [each.streamer or each.leaving for each in self.budget.holders]
            coming = [*self._coming.values()]
        self._notify()
        if self._workers is not None:
            self._workers.begin_close(drain)
        for each in coming:
            each.close(drain=False, timeout=0)
        streamers = list(filter(None, loaded))
        for streamer in streamers:
            Component(streamer).begin_close(drain, alone=False)
        for streamer in streamers:
            streamer.close(drain, left())
        if self._workers is not None:
            self._workers.close(0 if coming else left())
        with self.lock:
            for version in self.budget.holders:
                if version.state is State.READY:
                    version.state, version.streamer = State.UNLOADED, None
        for jobs in (self._installs, self._jobs, self._drops, self._drains):
            jobs.wait_ended(left())
        self.on_ready = self.on_failed = _ignore  # methods of an object that has this one
        self.after_failure = _nothing

    def _wants(self, version: Version) -> bool:
        """Note that a version is to be loaded. True: the caller has to start that."""
        if version.state not in (State.UNLOADED, State.FAILED):
            return False
        version.state = State.LOADING
        version.spec = version.next_spec
        version.tried_stamp = version.stamp
        version.wanted = False
        return True

    def _retire(self, version: Version) -> None:
        """Take the streamer from a version. The caller holds the lock, and has it drained."""
        streamer = version.streamer
        assert streamer is not None
        self._drained.add(streamer)
        version.leaving, version.streamer = streamer, None
        version.retired_at = time.monotonic()
        version.state = State.DRAINING

    def _notify(self) -> None:
        with self.lock:
            self._changes += 1
        self._changed.notify()

    # --------------------------------------------------------- the loader threads

    def _start(self, version: Version) -> None:
        """Load a version in a thread of the loader. Its state is LOADING.

        An environment that is missing is made before, by other threads and without room, because
        that may take minutes.
        """
        environment = version.spec.environment
        try:
            if environment is None or environment.is_made:
                self._jobs.start(functools.partial(self._load, version))
            else:
                self._installs.start(functools.partial(self._install, version))
        except Exception as error:  # no thread can start
            self._fail(version, error)

    def _install(self, version: Version) -> None:
        try:
            with self._noting(version) as note:
                self._making.prepare(version, note)()
            self._jobs.start(functools.partial(self._load, version))
        except BaseException as error:
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
            begun = time.monotonic()
            with self._noting(version) as note:
                streamer = self._making.make(version, note, self._worker_died)
                version.load_seconds = time.monotonic() - begun
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
                self.budget.free(version)

    @contextlib.contextmanager
    def _noting(self, version: Version) -> Iterator[Callable[[Any], None]]:
        """Give a function that notes what `close` has to end."""

        def note(coming: Any) -> None:
            with self.lock:
                self.check_open()
                self._coming[version] = coming

        try:
            yield note
        finally:
            with self.lock:
                self._coming.pop(version, None)
            version.progress = None

    def _publish(self, version: Version, streamer: BaseStreamer) -> bool:
        """Give the requests of a version to its streamer. Return False if the hub is closed."""
        with self.lock:
            if self.closed:
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
            self._forward(version, streamer, piece)
        with self.lock:
            closed = self.closed
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
            closed = self.closed
        if not closed and version.is_broken:
            self.on_failed(version)  # before others see that it has failed
        with self.lock:
            waiting, version.waiting = version.waiting, []
            version.state = State.FAILED
            self.budget.free(version)
            closed = self.closed
        self._notify()
        self.after_failure()
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

    # ----------------------------------------------------------------------- room

    def _make_room(self, version: Version, loaded: bool) -> bool:
        """Unload other versions until there is room for this one.

        Args:
            version: to be loaded.
            loaded: its streamer exists, and holds its room. The method does not wait for loads
                then, because these may wait for this one. It returns False instead.

        Raises:
            ModelTooLarge, NoRoomForModel: there will be no room.
        """
        while True:
            self._measure_again()
            with self.lock:
                self.check_open()
                if self.budget.take(version):
                    return True
                states = self.budget.states_beside(version)
                victims = self.budget.victims(version, time.monotonic())
                if victims is None:
                    if states.isdisjoint(MOVING):
                        raise self.budget.refusal(version)
                    if loaded and State.DRAINING not in states:
                        return False
                for victim in victims or ():
                    self._retire(victim)
                    victim.evicted_at = time.monotonic()
                changes = self._changes
            for victim in victims or ():
                self._drain_soon(victim)
            patience = _budget.PATIENCE if victims or State.DRAINING in states else None
            self._changed.wait_for(lambda seen=changes: self._changes != seen, patience)  # type: ignore[misc]

    def _measure_again(self) -> None:
        """Measure the worker processes again: models grow with their first requests."""
        if self.budget.limits.memory is None:
            return
        with self.lock:
            holders = [(each, each.streamer) for each in self.budget.holders]
        for version, streamer in holders:
            size = None if streamer is None else _memory.of_workers(streamer)
            if size and version.size is not None:
                version.size = version.size._replace(host=size)

    def _drain_soon(self, version: Version) -> None:
        try:
            self._drains.start(functools.partial(self.drain, version))
        except RuntimeError:  # no thread can start
            self.drain(version)

    # ------------------------------------------------------------- shared workers

    def _worker_died(self, version: Version) -> None:
        """Count a death of the shared worker that ran a version; after the second, move it.

        Called before the next worker starts. That one refuses the requests that are in its queue,
        and they wait for the load in a process of its own.
        """
        with self.lock:
            version.worker_deaths += 1
            moves = self._moves_apart(version)
        _log.worker_died(version)
        if moves:
            with contextlib.suppress(RuntimeError):  # at exit no thread can start
                self._drains.start(functools.partial(self.drain, version))

    def _moves_apart(self, version: Version) -> bool:
        """Retire a ready version that must leave its shared worker. True: the caller drains it."""
        streamer = version.streamer
        if self.closed or version.state is not State.READY or not version.is_apart:
            return False
        if not isinstance(streamer, SharedStreamer):
            return False
        version.wanted = True
        self._retire(version)
        streamer.refuse()
        return True

    # ----------------------------------------------------------------------- fork

    def _reset_after_fork(self) -> None:
        self.forked = True
        self._coming = {}
        for version in list(self.budget.holders):
            version.waiting, version.wanted = [], False
            version.leaving = None
            if version.state in MOVING:
                version.state = State.READY if version.streamer is not None else State.UNLOADED
                if version.streamer is None:
                    self.budget.free(version)
        self._begin()


def _ignore(version: Version) -> None:
    pass


def _nothing() -> None:
    pass
