"""Keeps as many workers as there should be: starts, restarts, replaces and retires them.

One thread does it, from the first start to the last end: PDEATHSIG, by which workers die with their
parent, is sent when the *thread* that started them ends. Other threads only leave a message.

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

from .. import _lifecycle
from .._errors import StreamerClosed, WorkerInitError
from .._waiting.threads import Bell
from .places import PROVEN, Place, State, Worker
from .rollout import Roll, Rollout
from .start import UNGUARDED_MAIN, Process, Start, Version, wait_for_all

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


class Supervisor:
    """What the supervising thread does (`run`), and what others may ask of it."""

    def __init__(
        self,
        server: Server,
        start: Start,
        version: Version,
        worker_num: int,
        batch_size: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._start = start
        self._batch_size = batch_size
        self._clock = clock
        self.bell = Bell()
        """rings when workers come, go or become ready"""
        # messages from other threads
        self._worker_num = worker_num
        self._closing = False
        self._finishing = False
        self._started = False
        # of the supervising thread
        self._places = [Place(index) for index in range(worker_num)]
        self._workers: dict[int, Worker] = {}  # by the server's number, until they are gone
        self._rollout = Rollout(
            version,
            self._places,
            self._workers,
            start=self._start_worker,
            retire=self._retire,
            clock=clock,
        )
        self._failure: str | None = None
        self._ending: dict[Process, float] = {}  # what should end by itself, and until when

    # ------------------------------------------------------------ for other threads

    def wait_started(self) -> None:
        """Wait until the first workers are processes."""
        self.bell.wait(lambda: self._started, None)

    def resize(self, worker_num: int) -> None:
        """Have more workers, or fewer."""
        self._worker_num = worker_num
        self._server.interrupt()

    def restart(self, version: Version) -> Roll:
        """Replace all workers by those of another version object, one after the other."""
        roll = self._rollout.ask(version)
        self._server.interrupt()
        return roll

    @property
    def version(self) -> Version:
        """What the workers have, or will have when the restarts asked for are done."""
        return self._rollout.newest()

    def wait_rolled(self, roll: Roll, timeout: float | None) -> bool:
        """Wait until a restart is done; False if time is over first.

        Raises:
            WorkerInitError: the new workers cannot load their model.
            StreamerClosed: the streamer was closed first.
        """
        if not self.bell.wait(lambda: roll.done or self._finishing, timeout):
            return False
        if not roll.done:
            raise StreamerClosed("the streamer was closed")
        if roll.error is not None:
            raise roll.error
        return True

    def wait_ready(self, timeout: float | None) -> bool:
        """Wait until every worker has loaded its model; False if time is over first.

        Raises:
            WorkerInitError: none can, or one was given up.
            StreamerClosed: the streamer is closed.
        """
        if not self.bell.wait(lambda: self._obstacle() is not None or self.all_ready(), timeout):
            return False
        obstacle = self._obstacle()
        if obstacle is not None and not self.all_ready():
            raise obstacle
        return True

    def any_ready(self) -> bool:
        """Whether at least one worker has loaded its model."""
        return any(place.is_ready() for place in self._places)

    def all_ready(self) -> bool:
        """Whether every worker has loaded its model."""
        return self._worker_num == len(self._places) and all(p.is_ready() for p in self._places)

    def init_failure(self) -> str | None:
        """Say why no worker can load its model, or why one was given up; None while all may."""
        return self._failure or next((p.given_up for p in self._places if p.given_up), None)

    def given_up(self) -> str | None:
        """Say why every worker was given up; None while there is hope for one."""
        reasons = [place.given_up for place in self._places]
        return reasons[0] if all(reasons) else None

    def close(self) -> None:
        """End what waits for workers to become ready; go on until `finish`."""
        self._closing = True
        self.bell.ring()
        self._server.interrupt()

    def finish(self) -> None:
        """End all workers, and then the supervising thread. Nobody waits for an answer any more."""
        self._finishing = True
        self.bell.ring()
        self._server.interrupt()

    def kill(self) -> None:
        """End all processes at once."""
        for worker in list(self._workers.values()):
            worker.process.kill()

    # -------------------------------------------------------- the supervising thread

    def run(self) -> None:
        """Supervise until `finish`."""
        try:
            while not self._finishing:
                self._follow_messages()
                self._start_due()
                self._started = True
                self.bell.ring()
                event = self._server.next_event(self._time_left())
                if event is not None:
                    self._handle(*event)
                self._collect()
        finally:
            self._started = self._closing = self._finishing = True
            self._rollout.end_all()
            self.bell.ring()
            self._end_workers()

    def _follow_messages(self) -> None:
        while len(self._places) < self._worker_num:
            self._places.append(Place(len(self._places)))
        while len(self._places) > self._worker_num:
            place = self._places.pop()
            for worker in (place.successor, place.worker):
                self._retire(worker)
        self._rollout.advance()

    def _start_due(self) -> None:
        now = self._clock()
        for place in self._places:
            if place.worker is None and place.given_up is None and place.start_at <= now:
                place.worker = self._start_worker(place, self._rollout.version)

    def _start_worker(self, place: Place, version: Version) -> Worker | None:
        try:
            started = self._start(place.index, len(self._places), self._batch_size, version)
        except Exception as error:  # no process, no descriptor, no memory: that may pass
            why = f"{type(error).__name__}: {error}"
            self._could_not_load(place, version, why, passing=isinstance(error, OSError))
            return None
        with _lifecycle.no_fork:
            socket = _lifecycle.release(started.socket)
            number = self._server.add_worker(socket, started.process.pid, started.setup)
        worker = Worker(started.process, place, version)
        self._workers[number] = worker
        return worker

    def _time_left(self) -> float | None:
        """Seconds until something is to be done; None: nothing is."""
        times = list(self._ending.values())
        due = [place for place in self._places if place.worker is None and place.given_up is None]
        if (behind := self._rollout.next_place()) is not None:
            due.append(behind)
        times += [place.start_at for place in due]
        return max(0.0, min(times) - self._clock()) if times else None

    # ------------------------------------------------------------------------ events

    def _handle(self, kind: str, number: int, text: str, had_batch: bool, hung: bool) -> None:
        worker = self._workers.get(number)
        if worker is None:
            return
        if kind == "ready":
            self._is_ready(worker)
        elif kind == "init_failed":
            self._let_end(worker.process)  # a thread that its model has started may keep it
            self._leaves(worker)
            self._could_not_load(worker.place, worker.version, text)
        elif kind == "retired":
            worker.may_get_work = False
        elif kind == "gone":
            self._is_gone(worker, had_batch, hung)
            del self._workers[number]

    def _is_ready(self, worker: Worker) -> None:
        if worker.state is not State.STARTING:
            return
        worker.state = State.READY
        worker.ready_at = self._clock()
        place = worker.place
        place.attempts = 0
        if place.successor is worker:
            self._rollout.version = worker.version  # it has proven itself
            self._retire(place.worker)
            place.worker, place.successor = worker, None
        if self._failure is not None:
            self._failure = None
            self._server.set_failure(None)

    def _is_gone(self, worker: Worker, had_batch: bool, hung: bool) -> None:
        process, place, state = worker.process, worker.place, worker.state
        # The end of its socket comes a moment before its own, and on a busy machine more than that.
        # Only of one that is missed need we know how it ended; and others wait for this thread.
        for _ in range(1 if state is State.LEAVING else PATIENCE):
            if process.wait(0.1) or self._closing:
                break
        if not process.ended:
            self._let_end(process)
        self._leaves(worker)
        if state is State.STARTING:
            how = f"worker process {process.pid} {process.describe()} while it loaded its model"
            self._could_not_load(place, worker.version, how)
        elif state is State.READY:
            how = "was killed because it hung" if hung else process.describe()
            while_busy = ", while it worked on a batch" if had_batch else ""
            if not self._finishing:  # then it is we who end them
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
        number = next(number for number, each in self._workers.items() if each is worker)
        if worker.state is State.STARTING:
            worker.process.kill()  # it may load for long, and has nothing to lose
        self._leaves(worker)
        worker.may_get_work = True
        self._server.retire_worker(number)

    # ------------------------------------------------------- a model that cannot load

    def _could_not_load(
        self, place: Place, version: Version, why: str, passing: bool = False
    ) -> None:
        roll = self._rollout.current
        if roll is not None and version is roll.version is not self._rollout.version:
            self._rollout.end(WorkerInitError(f"the workers go on as they were: {why}"))
            return
        if place not in self._places:
            return  # resized away
        place.attempts = max(place.attempts, 1) if passing else place.attempts + 1
        hopeless = place.attempts >= MAX_ATTEMPTS or UNGUARDED_MAIN in why
        if not hopeless:
            place.deaths = max(place.deaths, 1)  # never at once
            place.start_again(self._clock())
            _logger.warning("worker %d could not load its model: %s", place.index, why)
        else:
            times = f"{place.attempts} times in a row; " if place.attempts > 1 else ""
            why = f"{times}it is not tried again before a restart(): {why}"
            if place.is_ready():
                place.attempts = 0
            else:
                place.given_up = why
            _logger.error("worker %d could not load its model, %s", place.index, why)
            self._rollout.end(WorkerInitError(why))
        self._announce(why)

    def _announce(self, why: str) -> None:
        """Let no request wait for a worker when none is ready, or loads for the first time."""
        for place in self._places:
            if place.is_ready() or not place.attempts:
                return
        self._failure = why = why.encode(errors="replace").decode()  # an odd path in a traceback
        self._server.set_failure(f"init: {why}")

    def _obstacle(self) -> Exception | None:
        if self._closing:
            return StreamerClosed("the streamer is closed")
        why = self.init_failure()
        return None if why is None else WorkerInitError(why)

    # --------------------------------------------------------------------------- ends

    def _let_end(self, process: Process) -> None:
        self._ending.setdefault(process, self._clock() + GRACE)

    def _collect(self) -> None:
        now = self._clock()
        for process, at in list(self._ending.items()):
            if at <= now:
                process.kill()
                self._ending[process] = now + GRACE
            if process.wait(0):
                del self._ending[process]

    def _end_workers(self) -> None:
        for worker in self._workers.values():
            if worker.state is State.STARTING:
                worker.process.kill()
        self._server.stop()  # the end of file for the others
        processes = [worker.process for worker in self._workers.values()]
        processes += self._ending
        late = wait_for_all(processes, time.monotonic() + GRACE)
        for process in late:
            process.kill()
        wait_for_all(late, time.monotonic() + GRACE)
