"""The worker processes of a Streamer: start, readiness, failure, retirement and end.

::

    slot 0 ── worker (ready)                          a slot has one worker; while a new version
    slot 1 ── worker (ready), successor (starting)    is rolled out also a successor, which takes
    slot 2 ── no worker: starts again at 12.7 s       over when it is ready
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Protocol

from .._base.messages import describe
from .._placement import cores as _cores
from . import descriptors
from .init_failure import InitFailure
from .log import Log
from .process import Process, wait_for_all
from .restarts import Restarts
from .slots import FIRST_DELAY, STABLE_AFTER, Slot, State, Worker
from .start import ModelVersion, Start

MAX_ATTEMPTS = 5  # to load the model, in a row, in one slot
EXIT_POLLS = 20  # waits of 0.1 s for the exit code of a worker
GRACE = 5.0  # s for a worker without work to exit before it is killed


class Server(Protocol):
    """The methods of `_core.Server` that the pool uses."""

    def add_worker(self, socket: int, pid: int, setup: bytes, place: int) -> int: ...
    def retire_worker(self, worker: int) -> None: ...
    def next_event(self, timeout: float | None) -> tuple[str, int, str, bool, bool] | None: ...
    def interrupt(self) -> None: ...
    def set_failure(self, note: str | None) -> None: ...
    def stop(self) -> None: ...


class Pool:
    """The workers and their slots. Used by the supervisor thread; other threads only read it.

    Args:
        server: owns the connections to the workers.
        start: starts a worker process.
        version: the model of the first workers.
        worker_num: the number of slots.
        batch_size: most items per batch.
        clock: returns the time in seconds.
    """

    def __init__(
        self,
        server: Server,
        start: Start,
        version: ModelVersion,
        worker_num: int,
        batch_size: int,
        clock: Callable[[], float],
    ) -> None:
        self._server = server
        self._start = start
        self._batch_size = batch_size
        self._clock = clock
        self.closing = False
        """the streamer is closing: no call waits for ready workers"""
        self.finishing = False
        """the supervisor ends all workers"""
        self.slots = [Slot(index) for index in range(worker_num)]
        self.workers: dict[int, Worker] = {}
        """the workers by the number that the server gave them, until their connection is closed"""
        self.restarts = Restarts(version, self.slots, self.workers, clock)
        self.on_death: Callable[[], object] | None = None
        """the function that `Supervisor.share` was given"""
        self.failure: InitFailure | None = None
        """the reason why the server rejects requests: no worker can load the model"""
        self._ending: dict[
            Process, float
        ] = {}  # processes that should exit, and when they are killed
        self._log = Log(version.model.name)
        self._checked = 0  # the number of workers at the last check of their threads

    @property
    def _shared(self) -> bool:
        return self.on_death is not None

    def resize(self, worker_num: int) -> None:
        """Add slots, or remove the last ones and retire their workers."""
        while len(self.slots) < worker_num:
            self.slots.append(Slot(len(self.slots)))
        while len(self.slots) > worker_num:
            slot = self.slots.pop()
            for worker in (slot.successor, slot.worker):
                self._retire(worker)

    def advance(self) -> None:
        """Take the steps of a restart that are possible now."""
        self.restarts.advance(self._start_worker, self._retire)

    def start_due(self) -> None:
        """Start a worker in each empty slot whose start time has come."""
        now = self._clock()
        for slot in self.slots:
            if slot.worker is None and slot.given_up is None and slot.start_at <= now:
                slot.worker = self._start_worker(slot, self.restarts.version)

    def time_left(self) -> float | None:
        """Return the seconds until the next start or kill is due; None: none is scheduled."""
        times = list(self._ending.values())
        due = [slot for slot in self.slots if slot.worker is None and slot.given_up is None]
        if (behind := self.restarts.next_slot()) is not None:
            due.append(behind)
        times += [slot.start_at for slot in due]
        return max(0.0, min(times) - self._clock()) if times else None

    def _start_worker(self, slot: Slot, version: ModelVersion) -> Worker | None:
        try:
            started = self._start(slot.index, len(self.slots), self._batch_size, version)
        except Exception as error:  # an OSError, such as a lack of memory, may be temporary
            why = InitFailure(describe(error))
            passing = isinstance(error, OSError)
            self._could_not_load(slot, version, why, sudden=passing, passing=passing)
            return None
        with descriptors.no_fork:
            socket = descriptors.release(started.socket)
            pid = started.process.pid
            number = self._server.add_worker(socket, pid, started.setup, slot.index)
        worker = Worker(started.process, slot, version, started.device)
        self.workers[number] = worker
        self._log.started(worker)
        slot.lost = None
        return worker

    # ------------------------------------------------------------------------ events

    def handle(self, kind: str, number: int, text: str, had_batch: bool, hung: bool) -> None:
        """Handle an event of the server.

        Args:
            kind: "ready", "init_failed", "retired" or "gone"; of a client process
                "client_connected" or "client_gone".
            number: of the worker.
            text: the note of a failed load, or the pid of the client process.
            had_batch: the worker had a batch when its connection was closed.
            hung: the server killed the worker because of its hang timeout.
        """
        if kind in ("client_connected", "client_gone"):
            self._log.client(text, connected=kind == "client_connected")
            return
        worker = self.workers.get(number)
        if worker is None:
            return
        if kind == "ready":
            self._is_ready(worker)
            self._check_cores(worker, text)
        elif kind == "init_failed":
            self._let_end(worker.process)  # a thread of the model may keep the process alive
            self._leaves(worker)
            self._could_not_load(worker.slot, worker.version, InitFailure.from_note(text))
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
        self._log.ready(worker)
        slot = worker.slot
        slot.attempts = 0
        if slot.successor is worker:
            self.restarts.version = worker.version  # this version is known to load
            self._retire(slot.worker)
            slot.worker, slot.successor = worker, None
        if self.failure is not None:
            self.failure = None
            self._server.set_failure(None)

    def _check_cores(self, worker: Worker, about: str) -> None:
        """Warn, once for each number of workers, if their threads are more than the cores."""
        threads = json.loads(about or "{}").get("cpu_threads")
        count = len(self.slots)
        if worker.device not in (None, "") or self._checked == count:
            return
        self._checked = count
        if (text := _cores.complaint(count, threads, "threads_per_worker={}")) is not None:
            self._log.cores(text, count, threads)

    def _is_gone(self, worker: Worker, had_batch: bool, hung: bool) -> None:
        process, slot, state = worker.process, worker.slot, worker.state
        # The socket closes before the process ends. The exit code is needed only for the log of an
        # unexpected end, and this thread must not be blocked for long.
        for _ in range(1 if state is State.LEAVING else EXIT_POLLS):
            if process.wait(0.1) or self.closing:
                break
        if not process.ended:
            self._let_end(process)
        self._leaves(worker)
        if state is State.STARTING:
            how = f"worker process {process.pid} {process.describe()} while loading its model"
            # A shared worker had no model yet.
            why = InitFailure(how)
            self._could_not_load(slot, worker.version, why, sudden=True, passing=self._shared)
        elif state is State.READY:
            how = "was killed: hang timeout" if hung else process.describe()
            slot.lost = process.pid
            if not self.finishing:
                self._log.died(worker, how + (" during a batch" if had_batch else ""))
            if had_batch and self.on_death is not None:
                self.on_death()
            now = self._clock()
            if now - worker.ready_at >= STABLE_AFTER:
                slot.deaths = 0
            slot.start_again(self._clock(), self._shared)

    def _leaves(self, worker: Worker) -> None:
        worker.state = State.LEAVING
        slot = worker.slot
        if slot.worker is worker:
            slot.worker = None
        if slot.successor is worker:
            slot.successor = None

    def _retire(self, worker: Worker | None) -> None:
        if worker is None:
            return
        number = next(number for number, each in self.workers.items() if each is worker)
        if worker.state is State.STARTING:
            worker.process.kill()  # loading may take long, and it has no request
        self._leaves(worker)
        self._log.retires(worker)
        worker.may_get_work = True
        self._server.retire_worker(number)

    # ------------------------------------------------------- a model that cannot load

    def _could_not_load(
        self,
        slot: Slot,
        version: ModelVersion,
        why: InitFailure,
        *,
        sudden: bool = False,
        passing: bool = False,
    ) -> None:
        """Try again later, or give up.

        Args:
            slot, version: of the worker.
            why: the reason.
            sudden: the model has raised no exception, so the first failure ends no request.
            passing: it does not count as a failed attempt of the model.
        """
        first = sudden and not slot.attempts
        restart = self.restarts.current
        if restart is not None and version is restart.version is not self.restarts.version:
            slot.attempts = int(first)
            if first:
                slot.start_at = self._clock() + FIRST_DELAY
                self._log.could_not_load(slot, why, final=False)
            else:
                self.restarts.end(why.with_note("the old workers stay").error())
            return
        if slot not in self.slots:
            return  # the slot was removed by resize()
        slot.attempts = max(slot.attempts, 1) if passing else slot.attempts + 1
        final = slot.attempts >= MAX_ATTEMPTS or why.unguarded_main
        if not final:
            slot.deaths = max(slot.deaths, 1)  # so that the retry is delayed
            slot.start_again(self._clock(), self._shared)
            self._log.could_not_load(slot, why, final=False)
        else:
            times = f"{slot.attempts} times in a row; " if slot.attempts > 1 else ""
            why = why.with_note(f"{times}no further attempt before restart()")
            if slot.is_ready():
                slot.attempts = 0
            else:
                slot.given_up = why
            self._log.could_not_load(slot, why, final=True)
            self.restarts.end(why.error())
        if not first and not (passing and self._shared):
            self._announce(why)

    def _announce(self, why: InitFailure) -> None:
        """Reject requests if no worker is ready and each has failed to load at least once."""
        for slot in self.slots:
            if slot.is_ready() or not slot.attempts:
                return
        self.failure = why
        self._server.set_failure(f"init: {why.note}")

    # --------------------------------------------------------------------------- ends

    def _let_end(self, process: Process) -> None:
        self._ending.setdefault(process, self._clock() + GRACE)

    def collect(self) -> None:
        """Reap the processes that have ended; kill those whose grace period is over."""
        now = self._clock()
        for process, at in list(self._ending.items()):
            if at <= now:
                process.kill()
                self._ending[process] = now + GRACE
            if process.wait(0):
                del self._ending[process]

    def end(self) -> None:
        """End all workers and wait for them."""
        for worker in self.workers.values():
            if worker.state is State.STARTING:
                worker.process.kill()
        self._server.stop()  # closes the connections; ready workers exit at end of file
        processes = [worker.process for worker in self.workers.values()]
        processes += self._ending
        late = wait_for_all(processes, time.monotonic() + GRACE)
        for process in late:
            process.kill()
        wait_for_all(late, time.monotonic() + GRACE)
        self.workers.clear()
        for slot in self.slots:  # they refer to each other, and would stay until a collection
            slot.worker = slot.successor = None
