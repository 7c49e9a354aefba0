"""Rolling restarts: which version of the model the workers have, and how the next one takes over.

One place after the other gets a successor with the new version; when that is ready the old worker
retires. So requests find a worker all the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .._errors import StreamerClosed
from .places import Place, Worker
from .start import Version


class Roll:
    """A restart of all workers that is asked for or under way."""

    def __init__(self, version: Version) -> None:
        self.version = version
        self.error: Exception | None = None
        self.done = False


class Rollout:
    """The restarts of a Supervisor, one at a time. Its own thread but for `ask` and `newest`.

    Args:
        version: what the workers have at first.
        places: those of the supervisor.
        workers: all of them; one that leaves may be among them until it is gone.
        start: starts a worker at a place.
        retire: has one leave, if there is one.
        clock: tells the time.
    """

    def __init__(
        self,
        version: Version,
        places: list[Place],
        workers: dict[int, Worker],
        *,
        start: Callable[[Place, Version], Worker | None],
        retire: Callable[[Worker | None], None],
        clock: Callable[[], float],
    ) -> None:
        self.version = version
        """what a worker gets that has nobody to succeed"""
        self.current: Roll | None = None
        self._asked: deque[Roll] = deque()
        self._newest: Roll | None = None
        self._places = places
        self._workers = workers
        self._start = start
        self._retire = retire
        self._clock = clock

    def ask(self, version: Version) -> Roll:
        """Have all workers replaced, after the restarts that were asked for before. Any thread."""
        roll = self._newest = Roll(version)
        self._asked.append(roll)
        return roll

    def newest(self) -> Version:
        """Return what the workers will have when the restarts asked for are done. Any thread."""
        roll = self._newest
        return self.version if roll is None or roll.error is not None else roll.version

    def advance(self) -> None:
        """Do what can be done now."""
        while self.current is not None or self._asked:
            roll = self.current or self._begin(self._asked.popleft())
            self._advance(roll)
            if not roll.done:
                break

    def next_place(self) -> Place | None:
        """Return the place that is to have a successor next: none while another has one."""
        roll = self.current
        if roll is None or self._has_successor():
            return None
        return next((place for place in self._places if place.is_behind(roll.version)), None)

    def end(self, error: Exception | None) -> None:
        """End the restart that is under way; with an error nothing more is replaced."""
        if self.current is not None:
            self.current.error, self.current.done = error, True
        self.current = None

    def end_all(self) -> None:
        """End all, for the streamer was closed."""
        while self.current is not None or self._asked:
            self.current = self.current or self._asked.popleft()
            self.end(StreamerClosed("the streamer was closed"))

    def _has_successor(self) -> bool:
        return any(place.successor is not None for place in self._places)

    def _begin(self, roll: Roll) -> Roll:
        self.current = roll
        if any(place.is_ready() for place in self._places):
            return roll
        # Nothing is lost that way: nobody can be answered by the version that was.
        self.version = roll.version
        for place in self._places:
            self._retire(place.worker)
            place.revive(self._clock())
        return roll

    def _advance(self, roll: Roll) -> None:
        if self._has_successor():
            return
        behind = self.next_place()
        if behind is not None:
            if behind.start_at <= self._clock():
                behind.successor = self._start(behind, roll.version)
            return
        for place in self._places:
            if place.given_up is not None:
                place.revive(self._clock())
        if any(worker.may_get_work for worker in self._workers.values()):
            return  # what is asked for after the restart is not for the old version
        if all(place.is_ready(roll.version) for place in self._places):
            self.end(None)
