"""The places of a Streamer's workers: who works there, and when somebody should again."""

from __future__ import annotations

import dataclasses
import enum

from .init_failure import InitFailure
from .process import Process
from .start import Version

FIRST_DELAY = 0.1  # s, from the second restart on, doubled with each one more…
MAX_DELAY = 10.0  # … up to this
PROVEN = 10.0  # s that a worker has served before its death counts as its first


class State(enum.Enum):
    """Where a worker is on its way."""

    STARTING = "starting"
    READY = "ready"
    LEAVING = "leaving"
    """retired, or failed to load its model"""


@dataclasses.dataclass(eq=False)
class Worker:
    """One process, from its start until it is gone."""

    process: Process
    place: Place
    version: Version
    state: State = State.STARTING
    ready_at: float = 0.0
    may_get_work: bool = False
    """although it was told to leave: the server has not heard of it yet"""


@dataclasses.dataclass(eq=False)
class Place:
    """Where there should be one worker."""

    index: int
    worker: Worker | None = None
    successor: Worker | None = None
    start_at: float = 0.0
    deaths: int = 0  # in a row, none of them PROVEN
    attempts: int = 0  # to load the model that failed in a row
    given_up: InitFailure | None = None

    def is_ready(self, version: Version | None = None) -> bool:
        worker = self.worker
        if worker is None or worker.state is not State.READY:
            return False
        return version is None or worker.version is version

    def is_behind(self, version: Version) -> bool:
        """Whether its worker is ready, and of another version."""
        return self.is_ready() and not self.is_ready(version)

    def start_again(self, now: float) -> None:
        """Have a worker start after a death: at once, or with exponential back-off."""
        doublings = min(self.deaths - 1, 16)  # a float must not overflow in a long night
        delay = min(MAX_DELAY, FIRST_DELAY * 2.0**doublings) if self.deaths else 0.0
        self.deaths += 1
        self.start_at = now + delay

    def revive(self, now: float) -> None:
        """Try again although it was given up."""
        self.attempts, self.given_up, self.start_at = 0, None, now
