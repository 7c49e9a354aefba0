"""Runs the batches of an owner's engine on its replicas.

::

    worker threads ── one at a time waits for a batch, and only while a replica is idle; then it
                      runs the batch on that replica, and the next thread waits

So a batch is cut when a replica is idle, and grows until then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ray.exceptions import GetTimeoutError

from ... import _core
from ..._base.errors import WorkerLost
from ..._base.model_errors import NotRun
from ..._base.options import Options
from ..._models.serving import serve
from ..._waiting.threads import NativeThread, original
from ..calls import Gone, call
from ..replicas.log import Log
from ..replicas.member import Member
from ..replicas.members import Members
from ..replicas.meter import Meter
from ..replicas.scaling import Scaling
from ..settings import RaySettings
from .answers import held_until_flush


class Pool:
    """Any thread may call its methods.

    Args:
        engine: of the owner.
        name: of the model, for the log.
        packed: the pickled model.
        options: of the engine.
        output_batch: callers get slices of what the model returns.
        settings: of the replicas.
        flush: called after outputs are stored, in the thread that stored them.
    """

    def __init__(
        self,
        engine: _core.Engine,
        name: str,
        packed: bytes,
        options: Options,
        output_batch: bool,
        settings: RaySettings,
        flush: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._name = name
        self._budget = options.budget
        self._settings = settings
        self._flush = flush
        self._log = Log(name)
        self.members = Members(packed, options.batch_size, output_batch, settings, self._log)
        self._lock = original("_thread", "allocate_lock")()
        self._leading = False  # a worker thread waits for a batch
        self._meter = Meter(options.batch_size)
        self._threads: list[NativeThread] = []
        self.resize(settings.limits)
        self.members.start()

    def stop(self) -> None:
        """End the replicas and threads. The engine is closed and has no request any more."""
        self.members.stop()

    def resize(self, limits: tuple[int, int]) -> None:
        """Change the limits of the number of replicas. Does not wait."""
        least, most = limits
        members = self.members
        with self._lock:
            self._scaling = Scaling(least, most, self._settings.target_queue_time)
            members.review, members.active = self._review, self._is_active
            target = max(least, min(most, members.target))
            self._engine.set_workers(target)
            members.resize(target)
            missing = most - len(self._threads)
            new = [
                NativeThread(self._work, "service-streamer-worker") for _ in range(max(0, missing))
            ]
            self._threads += new
        for thread in new:
            thread.start()

    # ------------------------------------------------------------- the worker threads

    def _work(self) -> None:
        members = self.members
        while True:
            members.changed.wait_for(self._may_lead, None)
            with self._lock:
                if members.closing:
                    return
                if self._leading or not members.any_idle():
                    continue
                self._leading = True
            try:
                batch = self._engine.next_batch(None)
                member = members.reserve() if batch else None
            finally:
                with self._lock:
                    self._leading = False
                members.changed.notify()
            if not batch:
                return
            try:
                self._run(batch, member)
            except BaseException as error:  # from a logging handler, or for lack of memory
                self._log.broken(error)
            del batch  # requests that are still unanswered end with WorkerLost
            self._flush()

    def _may_lead(self) -> bool:
        return self.members.closing or (not self._leading and self.members.any_idle())

    def _run(self, batch: _core.Batch, member: Member | None) -> None:
        held = [member]  # the replica of this thread, if it has one now
        try:
            with held_until_flush():
                predict = functools.partial(self._predict, held)
                serve(batch, None, None, predict, self._budget, self._name)
        finally:
            if held[0] is not None:
                self.members.give_back(held[0])

    def _predict(self, held: list[Member | None], items: list[Any]) -> list[Any]:
        """Run a batch, or a part of it, on the replica that is held, or on others if it dies."""
        self._flush()  # a part of the batch may have been answered
        attempts = self._settings.retries + 1
        for _ in range(attempts):
            member = held[0] = held[0] or self.members.reserve()
            if member is None:
                error = self.members.obstacles.error()
                raise NotRun(error or WorkerLost("the RayStreamer is closed"))
            try:
                with self._meter.running(len(items)):
                    return call(member.handle, items, self._settings.hang_timeout)
            except GetTimeoutError:
                text = f"it was killed, because a batch took {self._settings.hang_timeout:g} s"
                self.members.lost(member, text)
            except Gone as gone:
                self.members.lost(member, gone)
            held[0] = None
        times = "once" if attempts == 1 else f"{attempts} times"
        raise NotRun(WorkerLost(f"a replica died while it had the batch of the request, {times}"))

    # ------------------------------------------------------------ the number of replicas

    def _is_active(self) -> bool:
        """Return True if the number of replicas may have to be changed."""
        scaling, members = self._scaling, self.members
        if scaling.least == scaling.most:
            return False
        return members.target > scaling.least or not members.any_idle()

    def _review(self) -> None:
        """Called by the thread of the members."""
        with self._lock:
            before = self.members.target  # some of them may have died
            load = self._meter.load(self._engine.stats(), before)
            if load is None or (target := self._scaling.decide(load)) == before:
                return
            self._engine.set_workers(target)
            self.members.target = target
        self._log.scaled(target, load.queue_time)
