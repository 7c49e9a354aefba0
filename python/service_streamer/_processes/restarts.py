"""Rolling restarts: replaces the workers by workers with another version of the model.

One slot after the other gets a successor with the new version. When the successor is ready, the old
worker retires. So there are always ready workers.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable

from .._base.errors import StreamerClosed
from .slots import Slot, Worker
from .start import ModelVersion


@dataclasses.dataclass(eq=False)
class Restart:
    """A requested restart of all workers. `done` is set last; `error` is None on success."""

    version: ModelVersion
    error: Exception | None = None
    done: bool = False


class Restarts:
    """The queue of restarts, which run one at a time.

    Used by the supervisor thread. Any thread may call `request` and `newest`.

    Args:
        version: of the first workers.
        slots: of the pool.
        workers: of the pool, including those that are leaving.
        clock: returns the time in seconds.
    """

    # It does not refer to the pool: that cycle would keep a closed streamer until a collection.

    def __init__(
        self,
        version: ModelVersion,
        slots: list[Slot],
        workers: dict[int, Worker],
        clock: Callable[[], float],
    ) -> None:
        self.version = version
        """the version for a worker that is not a successor"""
        self.current: Restart | None = None
        self._queued: deque[Restart] = deque()
        self._newest: Restart | None = None
        self._slots = slots
        self._workers = workers
        self._clock = clock

    def request(self, version: ModelVersion) -> Restart:
        """Queue a restart of all workers. Any thread."""
        restart = self._newest = Restart(version)
        self._queued.append(restart)
        return restart

    def newest(self) -> ModelVersion:
        """Return the version of the workers after all queued restarts. Any thread."""
        restart = self._newest
        return self.version if restart is None or restart.error is not None else restart.version

    def advance(
        self,
        start: Callable[[Slot, ModelVersion], Worker | None],
        retire: Callable[[Worker | None], None],
    ) -> None:
        """Take all steps that are possible now. Never blocks.

        Args:
            start: starts a worker in a slot.
            retire: retires a worker; does nothing for None.
        """
        while self.current is not None or self._queued:
            restart = self.current or self._begin(self._queued.popleft(), retire)
            self._advance(restart, start)
            if not restart.done:
                break

    def next_slot(self) -> Slot | None:
        """Return the next slot that gets a successor. None while any slot has one."""
        restart = self.current
        if restart is None or self._has_successor():
            return None
        return next((slot for slot in self._slots if slot.is_behind(restart.version)), None)

    def end(self, error: Exception | None) -> None:
        """End the current restart. After an error no further worker is replaced."""
        if self.current is not None:
            self.current.error, self.current.done = error, True
        self.current = None

    def end_all(self) -> None:
        """End all restarts with `StreamerClosed`."""
        while self.current is not None or self._queued:
            self.current = self.current or self._queued.popleft()
            self.end(StreamerClosed("the streamer was closed"))

    def _has_successor(self) -> bool:
        return any(slot.successor is not None for slot in self._slots)

    def _begin(self, restart: Restart, retire: Callable[[Worker | None], None]) -> Restart:
        self.current = restart
        if any(slot.is_ready() for slot in self._slots):
            return restart
        # No worker of the old version is ready, so all can be replaced at once.
        self.version = restart.version
        for slot in self._slots:
            retire(slot.worker)
            slot.revive(self._clock())
        return restart

    def _advance(
        self, restart: Restart, start: Callable[[Slot, ModelVersion], Worker | None]
    ) -> None:
        if self._has_successor():
            return
        behind = self.next_slot()
        if behind is not None:
            if behind.start_at <= self._clock():
                behind.successor = start(behind, restart.version)
            return
        for slot in self._slots:
            if slot.given_up is not None:
                slot.revive(self._clock())
        if any(worker.may_get_work for worker in self._workers.values()):
            return  # requests after the restart must not run on the old version
        if all(slot.is_ready(restart.version) for slot in self._slots):
            self.end(None)
