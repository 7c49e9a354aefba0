"""The replicas of an owner: started, replaced, added, removed and ended by one thread.

Threads of Ray tell that a replica has loaded its model, or that it has died.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import time
from collections.abc import Callable
from typing import Any

from ray.exceptions import RuntimeEnvSetupError

from ..._processes.init_failure import InitFailure
from ..._waiting.threads import Condition, NativeThread, original
from .. import cluster
from ..settings import RaySettings
from .ends import PATIENCE, Ends, end_all, kill
from .log import Log
from .loops import wait_for
from .member import Member
from .meter import TICK
from .obstacles import Obstacles
from .replica import launch


class Members:
    """Keeps as many replicas as there should be.

    Any thread may call the public methods.

    Args:
        packed: the pickled model.
        batch_size: most items per batch.
        output_batch: callers get slices of what the model returns.
        settings: of the replicas.
        log: of the owner.
    """

    def __init__(
        self,
        packed: bytes,
        batch_size: int,
        output_batch: bool,
        settings: RaySettings,
        log: Log,
    ) -> None:
        self._packed = packed
        self._batch_size = batch_size
        self._output_batch = output_batch
        self._settings = settings
        self._log = log
        self.target = settings.limits[0]
        """the number of replicas that there should be"""
        self.restarts = 0
        """the number of replicas that died after they had loaded their model"""
        self.changed = Condition()
        """notified when anything here changes"""
        self.obstacles = Obstacles(log)
        """the reasons why no replica can be ready"""
        self.closing = False
        self.review: Callable[[], None] = lambda: None
        """called by the thread each `TICK`, while `active` returns True"""
        self.active: Callable[[], bool] = lambda: False
        self._lock = original("_thread", "allocate_lock")()
        self._numbers = itertools.count(1)
        self._all: list[Member] = []
        self._idle: list[Member] = []
        self._ends = Ends(lambda handle: self._tell("finished", None, handle))
        self._events: collections.deque[tuple[str, Member | None, Any]] = collections.deque()
        self._thread = NativeThread(self._supervise, "service-streamer-supervisor")

    # --------------------------------------------------------------------- any thread

    def start(self) -> None:
        """Start the first replicas. Does not wait."""
        self._thread.start()

    def stop(self) -> None:
        """End all replicas, and the thread."""
        self.closing = True
        self.changed.notify()
        self._thread.join(PATIENCE + 1)

    def resize(self, target: int) -> None:
        """Change the number, and try again if the model could not be loaded. Does not wait."""
        self.target = target
        self._tell("resized", None)

    async def wait_ready(self, timeout: float | None) -> bool:
        """Wait until as many are ready as there should be; False on timeout, or at the end.

        Raises:
            WorkerInitError: a replica cannot load the model.
            ClusterError: no node has the resources of a replica.
        """
        await wait_for(self.changed, self._is_settled, timeout)
        if (error := self.obstacles.error()) is not None and not self._enough():
            raise error
        return self._enough()

    def count(self, ready: bool = False) -> int:
        """Return the number of replicas, or of those that have loaded the model."""
        return sum(not each.ended and (each.ready or not ready) for each in list(self._all))

    def about(self) -> list[str]:
        """Return what the ready replicas told of themselves."""
        return [each.about for each in list(self._all) if each.ready and not each.ended]

    def any_idle(self) -> bool:
        """Return True if a batch can run now, or if none can run at all."""
        return bool(self._idle) or self._hopeless()

    def reserve(self) -> Member | None:
        """Return an idle replica. Blocks until there is one. None: there will be none."""
        while True:
            self.changed.wait_for(lambda: self.any_idle() or self.closing, None)
            with self._lock:
                while self._idle:
                    member = self._idle.pop()
                    if not member.ended:
                        return member
                if self.closing or self._hopeless():
                    return None

    def give_back(self, member: Member) -> None:
        """Return a replica that was reserved."""
        with self._lock:
            what = "idle" if member.ended else "free"
            if what == "free":
                self._idle.append(member)
        self._tell(what, member)

    def lost(self, member: Member, error: Any) -> None:
        """Note that a reserved replica has died, or is to be killed."""
        self._tell("died", member, error)

    def _enough(self) -> bool:
        return self.count(ready=True) >= self.target

    def _is_settled(self) -> bool:
        return self.closing or self._enough() or self.obstacles.block(self._all)

    def _hopeless(self) -> bool:
        # One that has just died counts until the obstacles before its death are forgotten.
        return self.obstacles.block(self._all) and not any(each.ready for each in list(self._all))

    def _tell(self, what: str, member: Member | None, value: Any = None) -> None:
        if what == "died" and member is not None:
            member.ended = True
            with self._lock:
                if member in self._idle:
                    self._idle.remove(member)
        if what != "free":
            self._events.append((what, member, value))
        self.changed.notify()

    def _heard(self, what: str, member: Member, future: Any) -> None:
        """Called by a thread of Ray, which must not block, when a call of a replica has ended."""
        error = future.exception()
        if error is not None:
            self._tell("died", member, error)
        elif what != "died":
            self._tell(what, member, future.result())

    # ---------------------------------------------------------------------- the thread

    def _supervise(self) -> None:
        while not self.closing:
            try:
                pause = self._round()
            except Exception as error:  # of Ray, as while the head of the cluster restarts
                failure = InitFailure(f"Ray could not start a replica: {error!r}")
                self.obstacles.failed(failure, time.monotonic(), passing=True)
                pause = self.obstacles.pause()
            self.changed.notify()
            sleeps = pause is None or pause > TICK
            self.changed.wait_for(functools.partial(self._due, sleeps), pause)
        end_all(
            (each.handle for each in self._all if each.ready),
            (each.handle for each in self._all if not each.ready),
        )

    def _due(self, sleeps: bool) -> bool:
        return bool(self._events) or self.closing or (sleeps and self.active())

    def _round(self) -> float | None:
        """Do what is due. Return the seconds until something else is; None: nothing is."""
        self._ends.review()
        while self._events:
            self._handle(*self._events.popleft())
        if self.active():
            self.review()
        self._match()
        if self._enough():
            self.obstacles.clear()
        with contextlib.suppress(Exception):  # the head of the cluster restarts
            self._check_place()
        return self._pause()

    def _handle(self, what: str, member: Member | None, value: Any) -> None:
        if what == "finished":
            self._ends.complete(value)
        elif what == "resized":
            self.obstacles.clear()
        if member is None or member not in self._all:
            return
        if what == "loaded" and not member.ended:
            self._loaded(member, *value)
        elif what == "placed":
            member.placed = True
        elif what == "died":
            self._died(member, value)
        elif what == "idle":
            self._all.remove(member)
            self._ends.begin(member.handle)

    def _loaded(self, member: Member, about: str, note: str) -> None:
        if note:
            member.ended = True
            self._all.remove(member)
            kill(member.handle)
            self._failed(member, InitFailure.from_note(note), passing=False)
            return
        self.obstacles.clear()
        member.about = about
        self._log.ready(member.number, about)
        with self._lock:
            member.ready = True
            if not member.ended:
                self._idle.append(member)

    def _died(self, member: Member, error: Any) -> None:
        if member.ready:
            self.obstacles.clear()  # its replacement is a new attempt
        self._all.remove(member)
        self._log.died(member.number, error)
        if member.ready:
            self.restarts += 1
        else:
            text = f"a replica died while it loaded the model: {error}"
            self._failed(member, InitFailure(text), not isinstance(error, RuntimeEnvSetupError))
        kill(member.handle)  # it may only be out of reach

    def _failed(self, member: Member, failure: InitFailure, passing: bool) -> None:
        passing = passing or self.count(ready=True) > 0
        self.obstacles.failed(failure, member.started, passing)

    def _match(self) -> None:
        """Start the replicas that are missing, and end those that are too many."""
        if self.obstacles.pause() == 0:
            for _ in range(self.target - self.count()):  # some may die meanwhile
                self._start_one()
        while self.count() > self.target:
            live = [each for each in self._all if not each.ended]
            if not live:  # they have died just now
                break
            with self._lock:
                member = ([each for each in live if not each.ready] or self._idle or live)[-1]
                member.ended = True
                busy = member.ready and member not in self._idle
                if member in self._idle:
                    self._idle.remove(member)
            if not member.ready:  # Ray may still search a node for it
                self._all.remove(member)
                kill(member.handle)
            elif not busy:  # otherwise it ends when it is given back
                self._all.remove(member)
                self._ends.begin(member.handle)

    def _start_one(self) -> None:
        handle = launch(self._settings, self._output_batch)
        member = Member(next(self._numbers), handle)
        calls = {
            "placed": handle.__ray_ready__.remote(),
            "loaded": handle.load.remote(self._packed, self._batch_size),
            "died": handle.watch.remote(),
        }
        for what, call in calls.items():
            call.future().add_done_callback(functools.partial(self._heard, what, member))
        self._all.append(member)

    def _pause(self) -> float | None:
        due = [TICK] if self.active() else []
        if (left := self._ends.left()) is not None:
            due.append(left)
        if self.count() < self.target and (pause := self.obstacles.pause()) is not None:
            due.append(pause)
        if not all(each.placed for each in self._all):
            due.append(max(0.1, min(1.0, self._settings.placement_timeout)))
        return min(due) if due else None

    def _check_place(self) -> None:
        demand, limit = self._settings.demand, time.monotonic() - self._settings.placement_timeout
        late = any(not each.placed and each.started < limit for each in self._all)
        why = cluster.lacking(demand) if late else None
        self.obstacles.lacks(why)
        self.obstacles.crowds(cluster.crowded(demand) if late and why is None else None)
