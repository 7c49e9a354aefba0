"""The supervisor thread, which starts, replaces, retires and ends worker processes.

One thread does all of that. Workers get PDEATHSIG, so that they die with their parent, and Linux
sends it when the *thread* that started them ends. Other threads only set a target and wake it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from .._base.errors import StreamerClosed
from .._waiting.threads import Condition
from .init_failure import InitFailure
from .pool import Pool, Server
from .restarts import Restart
from .start import ModelVersion, Start


class Supervisor:
    """Supervises the worker processes. One thread calls `run`; any thread the other methods."""

    def __init__(
        self,
        server: Server,
        start: Start,
        version: ModelVersion,
        worker_num: int,
        batch_size: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._pool = Pool(server, start, version, worker_num, batch_size, clock)
        self.changed = Condition()
        """notified when workers start, end or become ready"""
        self._worker_num = worker_num
        self._started = False

    # --------------------------------------------------------------- for any thread

    def share(self, on_death: Callable[[], object]) -> None:
        """Let models share the workers, which start without a model.

        So the death of a worker that starts fails no request: these wait for the next worker.

        Args:
            on_death: called when a worker has died with a batch, before another one starts. The
                supervisor thread calls it. It must not block or raise.
        """
        self._pool.on_death = on_death

    def wait_started(self) -> None:
        """Block until the first worker processes have been started."""
        self.changed.wait_for(lambda: self._started, None)

    def resize(self, worker_num: int) -> None:
        """Change the number of workers. Does not wait."""
        self._worker_num = worker_num
        self._server.interrupt()

    def restart(self, version: ModelVersion) -> Restart:
        """Request a restart with another version object. Does not wait."""
        restart = self._pool.restarts.request(version)
        self._server.interrupt()
        return restart

    @property
    def version(self) -> ModelVersion:
        """The version of the workers after all requested restarts."""
        return self._pool.restarts.newest()

    def wait_restarted(self, restart: Restart, timeout: float | None) -> bool:
        """Block until a restart is done; return False on timeout.

        Raises:
            WorkerInitError: the new workers cannot load their model.
            StreamerClosed: the streamer was closed before the restart was done.
        """
        if not self.changed.wait_for(lambda: restart.done or self._pool.finishing, timeout):
            return False
        if not restart.done:
            raise StreamerClosed("the streamer was closed")
        if restart.error is not None:
            raise restart.error
        return True

    def wait_ready(self, timeout: float | None) -> bool:
        """Block until every worker has loaded its model; return False on timeout.

        Raises:
            WorkerInitError: no worker can load its model, or one was given up.
            StreamerClosed: the streamer is closed.
        """
        if not self.changed.wait_for(
            lambda: self._obstacle() is not None or self.all_ready(), timeout
        ):
            return False
        obstacle = self._obstacle()
        if obstacle is not None and not self.all_ready():
            raise obstacle
        return True

    def any_ready(self) -> bool:
        """Return True if at least one worker has loaded its model."""
        return any(slot.is_ready() for slot in self._pool.slots)

    def all_ready(self) -> bool:
        """Return True if every worker has loaded its model."""
        slots = self._pool.slots
        return self._worker_num == len(slots) and all(p.is_ready() for p in slots)

    def init_failure(self) -> InitFailure | None:
        """Return why no worker can load its model, or why one was given up; else None."""
        reasons = (slot.given_up for slot in self._pool.slots if slot.given_up)
        return self._pool.failure or next(reasons, None)

    def given_up(self) -> InitFailure | None:
        """Return a reason if every worker was given up; else None."""
        reasons = [slot.given_up for slot in self._pool.slots]
        return reasons[0] if all(reasons) else None

    def close(self) -> None:
        """End all calls of `wait_ready`. Supervision continues until `finish`."""
        self._pool.closing = True
        self.changed.notify()
        self._server.interrupt()

    def finish(self) -> None:
        """Make the supervisor thread end all workers and then itself. No request is open."""
        self._pool.finishing = True
        self.changed.notify()
        self._server.interrupt()

    def kill(self) -> None:
        """Kill all worker processes."""
        for worker in list(self._pool.workers.values()):
            worker.process.kill()

    def _obstacle(self) -> Exception | None:
        if self._pool.closing:
            return StreamerClosed("the streamer is closed")
        why = self.init_failure()
        return None if why is None else why.error()

    # --------------------------------------------------------- the supervisor thread

    def run(self) -> None:
        """Supervise the workers until `finish` is called."""
        pool = self._pool
        try:
            while not pool.finishing:
                pool.resize(self._worker_num)
                pool.advance()
                pool.start_due()
                self._started = True
                self.changed.notify()
                event = self._server.next_event(pool.time_left())
                if event is not None:
                    pool.handle(*event)
                pool.collect()
        finally:
            self._started = pool.closing = pool.finishing = True
            pool.restarts.end_all()
            self.changed.notify()
            pool.end()
