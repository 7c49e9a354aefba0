"""The thread that starts worker processes, hears of their ends, and replaces and retires them.

One thread does it, from the first start to the last end: PDEATHSIG, by which workers die with their
parent, is sent when the *thread* that started them ends. Other threads only leave a message.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from .._errors import StreamerClosed
from .._waiting.threads import Bell
from .init_failure import InitFailure
from .pool import Pool, Server
from .rollout import Roll
from .start import Start, Version


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
        self._pool = Pool(server, start, version, worker_num, batch_size, clock)
        self.bell = Bell()
        """rings when workers come, go or become ready"""
        self._worker_num = worker_num
        self._started = False

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
        roll = self._pool.rollout.ask(version)
        self._server.interrupt()
        return roll

    @property
    def version(self) -> Version:
        """What the workers have, or will have when the restarts asked for are done."""
        return self._pool.rollout.newest()

    def wait_rolled(self, roll: Roll, timeout: float | None) -> bool:
        """Wait until a restart is done; False if time is over first.

        Raises:
            WorkerInitError: the new workers cannot load their model.
            StreamerClosed: the streamer was closed first.
        """
        if not self.bell.wait(lambda: roll.done or self._pool.finishing, timeout):
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
        return any(place.is_ready() for place in self._pool.places)

    def all_ready(self) -> bool:
        """Whether every worker has loaded its model."""
        places = self._pool.places
        return self._worker_num == len(places) and all(p.is_ready() for p in places)

    def init_failure(self) -> InitFailure | None:
        """Say why no worker can load its model, or why one was given up; None while all may."""
        reasons = (place.given_up for place in self._pool.places if place.given_up)
        return self._pool.failure or next(reasons, None)

    def given_up(self) -> InitFailure | None:
        """Say why every worker was given up; None while there is hope for one."""
        reasons = [place.given_up for place in self._pool.places]
        return reasons[0] if all(reasons) else None

    def close(self) -> None:
        """End what waits for workers to become ready; go on until `finish`."""
        self._pool.closing = True
        self.bell.ring()
        self._server.interrupt()

    def finish(self) -> None:
        """End all workers, and then the supervising thread. Nobody waits for an answer any more."""
        self._pool.finishing = True
        self.bell.ring()
        self._server.interrupt()

    def kill(self) -> None:
        """End all processes at once."""
        for worker in list(self._pool.workers.values()):
            worker.process.kill()

    def _obstacle(self) -> Exception | None:
        if self._pool.closing:
            return StreamerClosed("the streamer is closed")
        why = self.init_failure()
        return None if why is None else why.error()

    # -------------------------------------------------------- the supervising thread

    def run(self) -> None:
        """Supervise until `finish`."""
        pool = self._pool
        try:
            while not pool.finishing:
                pool.resize(self._worker_num)
                pool.rollout.advance()
                pool.start_due()
                self._started = True
                self.bell.ring()
                event = self._server.next_event(pool.time_left())
                if event is not None:
                    pool.handle(*event)
                pool.collect()
        finally:
            self._started = pool.closing = pool.finishing = True
            pool.rollout.end_all()
            self.bell.ring()
            pool.end()
