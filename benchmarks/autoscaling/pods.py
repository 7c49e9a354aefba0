"""Workers in processes that an autoscaler starts and ends, as a Deployment does with pods."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from service_streamer._redis.keys import Keys

from .controllers import Autoscaler, Look


class Ended(NamedTuple):
    """A process that has ended: its exit code, and the seconds since SIGTERM."""

    code: int
    seconds: float


class Pods:
    """Processes of workers. One thread calls the methods.

    Args:
        start: starts a process.
        grace: ``terminationGracePeriodSeconds``.
    """

    def __init__(self, start: Callable[[], subprocess.Popen[bytes]], grace: float) -> None:
        self._start = start
        self._grace = grace
        self._running: list[subprocess.Popen[bytes]] = []
        self._ending: list[tuple[subprocess.Popen[bytes], float]] = []
        self.ended: list[Ended] = []

    def __enter__(self) -> Pods:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self._running, *(each for each, _ in self._ending)):
            process.kill()
            process.wait()

    @property
    def replicas(self) -> int:
        return len(self._running)

    @property
    def ending(self) -> int:
        return len(self._ending)

    def scale(self, replicas: int) -> None:
        """Start processes, or end those that were started last."""
        while len(self._running) < replicas:
            self._running.append(self._start())
        while len(self._running) > replicas:
            process = self._running.pop()
            process.terminate()
            self._ending.append((process, time.monotonic()))
        self.collect()

    def collect(self) -> None:
        """Take note of processes that have ended, and kill those whose time is over."""
        now = time.monotonic()
        for process, since in list(self._ending):
            if process.poll() is None and now > since + self._grace:
                process.kill()
                process.wait()
            if process.returncode is not None:
                self._ending.remove((process, since))
                self.ended.append(Ended(process.returncode, now - since))

    def drive(
        self,
        autoscaler: Autoscaler,
        read: Callable[[], Mapping[str, float | None]],
        speed: float = 1.0,
    ) -> Iterator[float]:
        """Do what an autoscaler says. Yields its time in seconds after each step.

        Args:
            autoscaler: whose time begins at 0.
            read: the metrics.
            speed: its seconds in one real second.
        """
        begin = time.monotonic()
        while True:
            now = speed * (time.monotonic() - begin)
            if now >= autoscaler.due:
                self.scale(autoscaler.decide(now, Look(self.replicas, read())))
                yield now
            self.collect()
            time.sleep(min(0.01, max(0.0, (autoscaler.due - now) / speed)))


def queue_reader(client: object, prefix: str) -> Callable[[], Mapping[str, float | None]]:
    """Return what reads the length of both streams, as KEDA's scaler does.

    Args:
        client: of redis-py.
        prefix: of the queue.
    """
    from redis import RedisError

    keys = Keys(prefix)

    def length(key: bytes) -> float | None:
        with contextlib.suppress(RedisError):
            return int(client.xlen(key))  # type: ignore[attr-defined]
        return None

    return lambda: {"main": length(keys.main.key), "bulk": length(keys.bulk.key)}
