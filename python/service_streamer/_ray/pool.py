"""The replicas of an owner: started, given to batches, replaced, and ended.

::

    supervisor thread ── starts and ends actors; hears from Ray that one is ready or has died
    worker threads ───── one at a time waits for a batch, while a replica is idle; then it runs the
                         batch on that replica, and the next thread waits

A batch is cut only when a replica is idle, so it grows until then.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import logging
import time
from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError

from .. import _core
from .._errors import ClusterError, WorkerInitError, WorkerLost
from .._messages import see
from .._model_errors import NotRun
from .._processes.init_failure import InitFailure
from .._waiting.threads import Condition, NativeThread, original
from .._worker import serve
from . import cluster
from .answers import held_until_flush
from .calls import Gone, call
from .replica import Replica
from .scaling import Load, Scaling
from .settings import RaySettings

_logger = logging.getLogger("service_streamer")

TICK = 0.25  # s between two decisions about the number of replicas
ATTEMPTS = 5  # failed loads in a row, after which no replica is started any more
BACK_OFF = (0.1, 5.0)  # s before a replica is started after a failed one, the first and the longest
FINISH_PATIENCE = 5.0  # s for a replica to close what its model has opened


@dataclasses.dataclass(eq=False)
class Member:
    """One replica of the pool."""

    number: int
    handle: Any
    started: float
    """`time.monotonic()` seconds"""
    ready: bool = False
    ended: bool = False
    """it has died, or is to end once it is idle"""
    about: str = ""
    """what `Replica.load` told of it"""


class Pool:
    """Runs the batches of an engine on replicas.

    Args:
        engine: of the owner.
        name: of the model, for the log.
        packed: the pickled model.
        batch_size: most items per batch.
        budget: of `_worker.isolate`.
        output_batch: callers get slices of what the model returns.
        settings: of the replicas.
        flush: called after outputs are stored, in the thread that stored them.
    """

    def __init__(
        self,
        engine: _core.Engine,
        name: str,
        packed: bytes,
        batch_size: int,
        budget: float | None,
        output_batch: bool,
        settings: RaySettings,
        flush: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._name = name
        self._packed = packed
        self._batch_size = batch_size
        self._budget = budget
        self._output_batch = output_batch
        self._settings = settings
        self._flush = flush
        least, most = settings.limits
        self._scaling = Scaling(least, most, settings.target_queue_time)
        self.target = least
        """how many replicas there should be"""
        self.restarts = 0
        """replicas that died after they had loaded their model"""
        self.changed = Condition()
        """notified when anything here changes"""
        self._lock = original("_thread", "allocate_lock")()
        self._numbers = itertools.count(1)
        self._members: list[Member] = []
        self._idle: list[Member] = []
        self._leading = False  # a worker thread waits for a batch
        self._failure: InitFailure | None = None  # of the last load; None: it succeeded
        self._failures = 0  # in a row
        self._lacking: str | None = None  # why no node can have a replica
        self._start_at = 0.0  # not earlier, after a failure
        self._closing = False
        self._events: collections.deque[tuple[str, Member, Any]] = collections.deque()
        self._threads: list[NativeThread] = []
        self._supervisor = NativeThread(self._supervise, "service-streamer-supervisor")
        self._ran = 0.0  # s that replicas were at work, summed up
        self._work = _Work()

    # --------------------------------------------------------------------- any thread

    def start(self) -> None:
        """Start the first replicas. Does not wait."""
        self._supervisor.start()

    def stop(self) -> None:
        """End the replicas and threads. The engine is closed and has no request any more."""
        self._closing = True
        self.changed.notify()
        self._supervisor.join(FINISH_PATIENCE + 1)

    def resize(self, limits: tuple[int, int]) -> None:
        """Change the limits of the number of replicas. Does not wait."""
        self._scaling = Scaling(*limits, self._settings.target_queue_time)
        least, most = limits
        self.target = max(least, min(most, self.target))
        self.changed.notify()

    def wait_ready(self, timeout: float | None) -> bool:
        """Block until there are as many ready replicas as there should be; False on timeout.

        Raises:
            WorkerInitError: a replica cannot load the model.
            ClusterError: no node has the resources of a replica.
        """
        if not self.changed.wait_for(
            lambda: self.count(ready=True) >= self.target or self._error() is not None, timeout
        ):
            return False
        error = self._error()
        if error is not None and self.count(ready=True) < self.target:
            raise error
        return True

    def count(self, ready: bool = False) -> int:
        """Return the number of replicas, or of those that have loaded the model."""
        return sum(not each.ended and (each.ready or not ready) for each in list(self._members))

    def about(self) -> list[str]:
        """Return what the ready replicas told of themselves."""
        return [each.about for each in list(self._members) if each.ready and not each.ended]

    # ------------------------------------------------------------- the worker threads

    def _serve_batches(self) -> None:
        while True:
            self.changed.wait_for(self._may_lead, None)
            with self._lock:
                if self._closing:
                    return
                if self._leading or not (self._idle or self._hopeless()):
                    continue
                self._leading = True
            unfinished = self._engine.run_batches(_unused, _always)
            member = None if unfinished is None else self._reserve()
            with self._lock:
                self._leading = False
            self.changed.notify()
            if unfinished is None:
                return
            try:
                self._run(unfinished[0], member)
            except BaseException as error:  # from a logging handler, or for lack of memory
                with contextlib.suppress(BaseException):
                    about = {"streamer": self._name, "error": repr(error)}
                    _logger.exception("a batch could not be answered", extra=about)
            del unfinished  # requests that are still unanswered end with WorkerLost
            self._flush()

    def _may_lead(self) -> bool:
        return self._closing or (not self._leading and bool(self._idle or self._hopeless()))

    def _run(self, batch: _core.Batch, member: Member | None) -> None:
        held = [member]  # the replica of this thread, if it has one now
        with self._work.one(), held_until_flush():
            predict = functools.partial(self._predict, held)
            serve(batch, None, None, predict, self._budget, self._name)
        if held[0] is not None:
            self._give_back(held[0])

    def _predict(self, held: list[Member | None], items: list[Any]) -> list[Any]:
        """Run a batch, or a part of it, on the replica that is held, or on others if it dies."""
        self._flush()  # a part of the batch may have been answered
        attempts = self._settings.retries + 1
        for _ in range(attempts):
            if held[0] is None or held[0].ended:
                held[0] = self._reserve()
            member = held[0]
            if member is None:
                raise NotRun(self._error() or WorkerLost("the RayStreamer is closed"))
            try:
                return call(member.handle, items, self._settings.hang_timeout)
            except GetTimeoutError:
                about = {"streamer": self._name, "seconds": self._settings.hang_timeout}
                text = "a replica has hung for %g s and is killed"
                _logger.error(text, self._settings.hang_timeout, extra=about)
                self._end(member)
                self._tell("died", member)
            except Gone as gone:
                self._tell("died", member, gone)
            member.ended = True
            held[0] = None
        times = "once" if attempts == 1 else f"{attempts} times"
        raise NotRun(WorkerLost(f"a replica died while it had the batch of the request, {times}"))

    def _reserve(self) -> Member | None:
        """Return an idle replica. Blocks until there is one. None: there will be none."""
        while True:
            self.changed.wait_for(
                lambda: bool(self._idle) or self._hopeless() or self._closing, None
            )
            with self._lock:
                while self._idle:
                    member = self._idle.pop()
                    if not member.ended:
                        return member
                if self._closing or self._hopeless():
                    return None

    def _give_back(self, member: Member) -> None:
        with self._lock:
            if member.ended:
                self._events.append(("idle", member, None))
            else:
                self._idle.append(member)
        self.changed.notify()

    def _hopeless(self) -> bool:
        """Return True if requests cannot wait for a replica."""
        return self._error() is not None and self.count(ready=True) == 0

    def _error(self) -> WorkerInitError | ClusterError | None:
        if self._failure is not None:
            return self._failure.error()
        return None if self._lacking is None else ClusterError(see(self._lacking, "clustererror"))

    # ------------------------------------------------------------- the supervisor thread

    def _supervise(self) -> None:
        try:
            while not self._closing:
                while self._events:
                    self._handle(*self._events.popleft())
                self._match()
                self._check_place()
                self.changed.notify()
                self.changed.wait_for(lambda: bool(self._events) or self._closing, self._pause())
                self._scale()
        except BaseException as error:
            about = {"streamer": self._name, "error": repr(error)}
            _logger.exception("the supervisor of replicas ended", extra=about)
            self._failure = InitFailure(f"the supervisor of replicas ended: {error!r}")
        finally:
            if self._closing:
                self._end_all()

    def _handle(self, what: str, member: Member, value: Any) -> None:
        if what == "loaded":
            self._loaded(member, value)
        elif what == "died" and member in self._members:
            self._died(member, value)
        elif what == "idle" and member in self._members:
            self._remove(member)
            self._finish(member)

    def _loaded(self, member: Member, value: Any) -> None:
        if member.ended:
            return
        about, note = value
        self._lacking = None
        if note:
            self._failed(InitFailure.from_note(note))
            self._remove(member)
            self._end(member)
            return
        self._failure, self._failures, self._start_at = None, 0, 0.0
        member.about = about
        member.ready = True
        _logger.info("replica %d is ready", member.number, extra={"streamer": self._name})
        with self._lock:
            self._idle.append(member)

    def _died(self, member: Member, error: Any) -> None:
        member.ended = True
        self._remove(member)
        about = {"streamer": self._name, "error": str(error)}
        _logger.warning("replica %d died: %s", member.number, error, extra=about)
        if member.ready:
            self.restarts += 1
        else:
            self._failed(InitFailure(f"a replica died while it loaded the model: {error}"))

    def _failed(self, failure: InitFailure) -> None:
        self._failures += 1
        self._failure = failure
        first, longest = BACK_OFF
        self._start_at = time.monotonic() + min(longest, first * 2**self._failures)
        about = {"streamer": self._name, "attempt": self._failures}
        text = "a replica could not load the model: %s"
        _logger.error(text, failure.for_log(), extra=about)
        if self._failures >= ATTEMPTS:
            self._failure = failure.with_note(f"after {ATTEMPTS} attempts no replica is started")

    def _match(self) -> None:
        """Start the replicas that are missing, and end those that are too many."""
        now = time.monotonic()
        while self.count() < self.target and now >= self._start_at and self._failures < ATTEMPTS:
            self._start_one()
        while self.count() > self.target:
            live = [each for each in self._members if not each.ended]
            unready = [each for each in live if not each.ready]
            with self._lock:
                member = (unready or self._idle or live)[-1]
                member.ended = True
                busy = member.ready and member not in self._idle
                if member in self._idle:
                    self._idle.remove(member)
            if not busy:
                self._remove(member)
                self._finish(member)
        self._engine.set_workers(max(1, self.count()))
        while len(self._threads) < self.target:
            thread = NativeThread(self._serve_batches, "service-streamer-worker")
            self._threads.append(thread)
            thread.start()

    def _start_one(self) -> None:
        settings = self._settings
        others = {k: v for k, v in settings.demand.items() if k not in ("CPU", "GPU")}
        handle = (
            ray.remote(Replica)
            .options(
                num_cpus=settings.num_cpus,
                num_gpus=settings.num_gpus,
                resources=others or None,
                runtime_env=settings.runtime_env,
                max_restarts=0,
                max_task_retries=0,
                max_concurrency=3,  # predict(), watch() and finish()
            )
            .remote(self._output_batch)
        )
        member = Member(next(self._numbers), handle, time.monotonic())
        self._members.append(member)
        loading = handle.load.remote(self._packed, self._batch_size)
        for what, ref in (("loaded", loading), ("died", handle.watch.remote())):
            ref.future().add_done_callback(functools.partial(self._heard, what, member))

    def _heard(self, what: str, member: Member, future: Any) -> None:
        """Called by a thread of Ray."""
        error = future.exception()
        if error is not None:
            self._tell("died", member, error)
        elif what == "loaded":
            self._tell(what, member, future.result())

    def _tell(self, what: str, member: Member, value: Any = None) -> None:
        if what == "died":
            member.ended = True
            with self._lock:
                if member in self._idle:
                    self._idle.remove(member)
        self._events.append((what, member, value))
        self.changed.notify()

    def _remove(self, member: Member) -> None:
        if member in self._members:
            self._members.remove(member)

    def _finish(self, member: Member) -> None:
        """Let a replica close what its model has opened, and end it."""
        done = member.handle.finish.remote()
        done.future().add_done_callback(lambda _: self._end(member))

    @staticmethod
    def _end(member: Member) -> None:
        with contextlib.suppress(RayError):
            ray.kill(member.handle)

    def _end_all(self) -> None:
        finishing = [each.handle.finish.remote() for each in self._members]
        with contextlib.suppress(RayError):
            ray.wait(finishing, num_returns=len(finishing) or 1, timeout=FINISH_PATIENCE)
        for member in self._members:
            self._end(member)

    def _pause(self) -> float | None:
        """Return the seconds until something is due; None: nothing is."""
        now = time.monotonic()
        due = []
        if self.count() < self.target and self._failures < ATTEMPTS:
            due.append(self._start_at - now)
        if any(not each.ready for each in self._members):
            due.append(min(1.0, self._settings.placement_timeout))
        if self._scaling.least < self._scaling.most:
            due.append(TICK)
        return max(0.0, min(due)) if due else None

    def _check_place(self) -> None:
        limit = time.monotonic() - self._settings.placement_timeout
        late = any(not each.ready and each.started < limit for each in self._members)
        why = cluster.lacking(self._settings.demand) if late else None
        if why is not None and self._lacking is None:
            _logger.error("%s: %s", self._name, why, extra={"streamer": self._name})
        self._lacking = why

    def _scale(self) -> None:
        if self._scaling.least == self._scaling.most:
            return
        load = self._work.load(self._engine.stats(), self.count())
        if load is None:
            return
        target = self._scaling.decide(load)
        if target != self.target:
            about = {"streamer": self._name, "replicas": target, "queue_time": load.queue_time}
            text = "%s: %d replicas instead of %d, the mean time in the queue is %.3f s"
            _logger.info(text, self._name, target, self.target, load.queue_time, extra=about)
            self.target = target


class _Work:
    """Measures the load between two decisions."""

    def __init__(self) -> None:
        self._lock = original("_thread", "allocate_lock")()
        self._running = 0
        self._busy = 0.0  # s, summed up over the running batches
        self._at = time.monotonic()
        self._last: tuple[float, float, dict[str, Any]] | None = None

    @contextlib.contextmanager
    def one(self) -> Any:
        """Count a batch that runs in the block."""
        self._change(1)
        try:
            yield
        finally:
            self._change(-1)

    def load(self, stats: dict[str, Any], replicas: int) -> Load | None:
        """Return the load since the last call; None: it was less than a `TICK` ago."""
        now = time.monotonic()
        if self._last is not None and now - self._last[0] < TICK * 0.9:
            return None
        busy = self._change(0)
        last, self._last = self._last, (now, busy, stats)
        if last is None:
            return None
        before, busy_before, old = last
        taken, old_taken = stats["queue_time"], old["queue_time"]
        count = sum(taken["buckets"].values()) - sum(old_taken["buckets"].values())
        mean = (taken["total"] - old_taken["total"]) / count if count else 0.0
        # What waits now will have waited for as long as the replicas take for what is ahead of it.
        rate = (stats["items"] - old["items"]) / (now - before)
        waiting = stats["queued_items"]
        ahead = waiting / rate / 2 if rate else (now - before) * (waiting > 0)
        return Load(now, max(mean, ahead), (busy - busy_before) / (now - before), replicas)

    def _change(self, by: int) -> float:
        with self._lock:
            now = time.monotonic()
            self._busy += self._running * (now - self._at)
            self._at = now
            self._running += by
            return self._busy


def _always() -> bool:
    return True


def _unused(items: list[Any]) -> Any:
    raise AssertionError("run_batches() runs no batch that is logged")


__all__ = ["Member", "Pool", "RayActorError"]
