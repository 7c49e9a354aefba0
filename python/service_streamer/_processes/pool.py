"""The worker processes of a Streamer: how each starts, becomes ready, fails and goes.

::

    place 0 ── worker (ready)                          a place has one worker; while a new version
    place 1 ── worker (ready), successor (starting)    is rolled out also its successor, which takes
    place 2 ── none: starts again at 12.7 s            over when it is ready
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from . import descriptors
from .init_failure import InitFailure
from .places import PROVEN, Place, State, Worker
from .process import Process, wait_for_all
from .rollout import Rollout
from .start import Start, Version

_logger = logging.getLogger("service_streamer")

MAX_ATTEMPTS = 5  # to load the model, in a row, of one place
PATIENCE = 20  # tenths of a second, to learn how a worker ended
GRACE = 5.0  # s that a worker without work has to end by itself


class Server(Protocol):
    """What it needs of `_core.Server`."""

    def add_worker(self, socket: int, pid: int, setup: bytes) -> int: ...
    def retire_worker(self, worker: int) -> None: ...
    def next_event(self, timeout: float | None) -> tuple[str, int, str, bool, bool] | None: ...
    def interrupt(self) -> None: ...
    def set_failure(self, note: str | None) -> None: ...
    def stop(self) -> None: ...


class Pool:
    """The workers at their places. Used by the supervising thread; others may read its state.

    Args:
        server: has the connections to the workers.
        start: starts a process.
        version: the model of the first workers.
        worker_num: the number of places.
        batch_size: most items per batch.
        clock: tells the time.
    """

    def __init__(
        self,
        server: Server,
        start: Start,
        version: Version,
        worker_num: int,
        batch_size: int,
        clock: Callable[[], float],
    ) -> None:
        self._server = server
        self._start = start
        self._batch_size = batch_size
        self._clock = clock
        self.closing = False
        """no request waits for a worker any more"""
        self.finishing = False
        """the workers are told to end"""
        self.places = [Place(index) for index in range(worker_num)]
        self.workers: dict[int, Worker] = {}
        """by the server's number, until they are gone"""
        self.rollout = Rollout(
            version,
            self.places,
            self.workers,
            start=self._start_worker,
            retire=self._retire,
            clock=clock,
        )
        self.failure: InitFailure | None = None
        """why requests are refused: no worker can load the model"""
        self._ending: dict[Process, float] = {}  # what should end by itself, and until when

    def resize(self, worker_num: int) -> None:
        """Add places, or have the workers of the last ones leave."""
        while len(self.places) < worker_num:
            self.places.append(Place(len(self.places)))
        while len(self.places) > worker_num:
            place = self.places.pop()
            for worker in (place.successor, place.worker):
                self._retire(worker)

    def start_due(self) -> None:
        """Start the workers whose time has come."""
        now = self._clock()
        for place in self.places:
            if place.worker is None and place.given_up is None and place.start_at <= now:
                place.worker = self._start_worker(place, self.rollout.version)

    def time_left(self) -> float | None:
        """Seconds until something is to be done; None: nothing is."""
        times = list(self._ending.values())
        due = [place for place in self.places if place.worker is None and place.given_up is None]
        if (behind := self.rollout.next_place()) is not None:
            due.append(behind)
        times += [place.start_at for place in due]
        return max(0.0, min(times) - self._clock()) if times else None

    def _start_worker(self, place: Place, version: Version) -> Worker | None:
        try:
            started = self._start(place.index, len(self.places), self._batch_size, version)
        except Exception as error:  # no process, no descriptor, no memory: that may pass
            why = InitFailure(f"{type(error).__name__}: {error}")
            self._could_not_load(place, version, why, passing=isinstance(error, OSError))
            return None
        with descriptors.no_fork:
            socket = descriptors.release(started.socket)
            number = self._server.add_worker(socket, started.process.pid, started.setup)
        worker = Worker(started.process, place, version)
        self.workers[number] = worker
        return worker

    # ------------------------------------------------------------------------ events

    def handle(self, kind: str, number: int, text: str, had_batch: bool, hung: bool) -> None:
        """Do what follows from an event that the server tells."""
        worker = self.workers.get(number)
        if worker is None:
            return
        if kind == "ready":
            self._is_ready(worker)
        elif kind == "init_failed":
            self._let_end(worker.process)  # a thread that its model has started may keep it
            self._leaves(worker)
            self._could_not_load(worker.place, worker.version, InitFailure.from_note(text))
        elif kind == "retired":
            worker.may_get_work = False
        elif kind == "gone":
            self._is_gone(worker, had_batch, hung)
            del self.workers[number]

    def _is_ready(self, worker: Worker) -> None:
        if worker.state is not State.STARTING:
            return
        worker.state = State.READY
        worker.ready_at = self._clock()
        place = worker.place
        place.attempts = 0
        if place.successor is worker:
            self.rollout.version = worker.version  # it has proven itself
            self._retire(place.worker)
            place.worker, place.successor = worker, None
        if self.failure is not None:
            self.failure = None
            self._server.set_failure(None)

    def _is_gone(self, worker: Worker, had_batch: bool, hung: bool) -> None:
        process, place, state = worker.process, worker.place, worker.state
        # The end of its socket comes a moment before its own, and on a busy machine more than that.
        # Only of one that is missed need we know how it ended; and others wait for this thread.
        for _ in range(1 if state is State.LEAVING else PATIENCE):
            if process.wait(0.1) or self.closing:
                break
        if not process.ended:
            self._let_end(process)
        self._leaves(worker)
        if state is State.STARTING:
            how = f"worker process {process.pid} {process.describe()} while it loaded its model"
            self._could_not_load(place, worker.version, InitFailure(how))
        elif state is State.READY:
            how = "was killed because it hung" if hung else process.describe()
            while_busy = ", while it worked on a batch" if had_batch else ""
            if not self.finishing:  # then it is we who end them
                _logger.error("worker process %d %s%s", process.pid, how, while_busy)
            now = self._clock()
            if now - worker.ready_at >= PROVEN:
                place.deaths = 0
            place.start_again(self._clock())

    def _leaves(self, worker: Worker) -> None:
        worker.state = State.LEAVING
        place = worker.place
        if place.worker is worker:
            place.worker = None
        if place.successor is worker:
            place.successor = None

    def _retire(self, worker: Worker | None) -> None:
        if worker is None:
            return
        number = next(number for number, each in self.workers.items() if each is worker)
        if worker.state is State.STARTING:
            worker.process.kill()  # it may load for long, and has nothing to lose
        self._leaves(worker)
        worker.may_get_work = True
        self._server.retire_worker(number)

    # ------------------------------------------------------- a model that cannot load

    def _could_not_load(
        self, place: Place, version: Version, why: InitFailure, passing: bool = False
    ) -> None:
        roll = self.rollout.current
        if roll is not None and version is roll.version is not self.rollout.version:
            self.rollout.end(why.adding("the workers go on as they were").error())
            return
        if place not in self.places:
            return  # resized away
        place.attempts = max(place.attempts, 1) if passing else place.attempts + 1
        hopeless = place.attempts >= MAX_ATTEMPTS or why.unguarded_main
        if not hopeless:
            place.deaths = max(place.deaths, 1)  # never at once
            place.start_again(self._clock())
            _logger.warning("worker %d could not load its model: %s", place.index, why.for_log())
        else:
            times = f"{place.attempts} times in a row; " if place.attempts > 1 else ""
            why = why.adding(f"{times}it is not tried again before a restart()")
            if place.is_ready():
                place.attempts = 0
            else:
                place.given_up = why
            _logger.error("worker %d could not load its model: %s", place.index, why.for_log())
            self.rollout.end(why.error())
        self._announce(why)

    def _announce(self, why: InitFailure) -> None:
        """Let no request wait for a worker when none is ready, or loads for the first time."""
        for place in self.places:
            if place.is_ready() or not place.attempts:
                return
        self.failure = why
        self._server.set_failure(f"init: {why.note}")

    # --------------------------------------------------------------------------- ends

    def _let_end(self, process: Process) -> None:
        self._ending.setdefault(process, self._clock() + GRACE)

    def collect(self) -> None:
        """Let go of the processes that have ended; kill those that had their time for it."""
        now = self._clock()
        for process, at in list(self._ending.items()):
            if at <= now:
                process.kill()
                self._ending[process] = now + GRACE
            if process.wait(0):
                del self._ending[process]

    def end(self) -> None:
        """End all workers, and wait until they have."""
        for worker in self.workers.values():
            if worker.state is State.STARTING:
                worker.process.kill()
        self._server.stop()  # the end of file for the others
        processes = [worker.process for worker in self.workers.values()]
        processes += self._ending
        late = wait_for_all(processes, time.monotonic() + GRACE)
        for process in late:
            process.kill()
        wait_for_all(late, time.monotonic() + GRACE)
