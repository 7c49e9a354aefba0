"""The slots of a worker pool: each has one worker, or the time of its next start."""

from __future__ import annotations

import dataclasses
import enum

from .._placement.devices import Device
from .init_failure import InitFailure
from .process import Process
from .start import ModelVersion

FIRST_DELAY = 0.1  # s before the second restart; doubled with each further one
MAX_DELAY = 10.0  # s, the upper limit of that delay
MAX_SHARED_DELAY = 1.0  # s, the same if other models wait for the worker, too
STABLE_AFTER = 10.0  # s; a worker that has served for so long resets the delay


class State(enum.Enum):
    """The state of a worker."""

    STARTING = "starting"
    READY = "ready"
    LEAVING = "leaving"
    """retired, or its model could not be loaded"""


@dataclasses.dataclass(eq=False)
class Worker:
    """One worker process, from its start until its connection is closed."""

    process: Process
    slot: Slot
    version: ModelVersion
    device: Device | None = None
    state: State = State.STARTING
    ready_at: float = 0.0
    may_get_work: bool = False
    """True until the server confirms that a retired worker gets no more batches"""


@dataclasses.dataclass(eq=False)
class Slot:
    """A slot for one worker. While the model is replaced, it also has the successor."""

    index: int
    worker: Worker | None = None
    successor: Worker | None = None
    start_at: float = 0.0
    deaths: int = 0  # in a row, each before STABLE_AFTER
    attempts: int = 0  # failed attempts to load the model, in a row
    given_up: InitFailure | None = None
    lost: int | None = None  # the pid of a worker that died and has no replacement yet

    def is_ready(self, version: ModelVersion | None = None) -> bool:
        worker = self.worker
        if worker is None or worker.state is not State.READY:
            return False
        return version is None or worker.version is version

    def is_behind(self, version: ModelVersion) -> bool:
        """Return True if its worker is ready and has another version."""
        return self.is_ready() and not self.is_ready(version)

    def start_again(self, now: float, shared: bool) -> None:
        """Schedule the next start after a death: at once, then with exponential back-off."""
        doublings = min(self.deaths - 1, 16)  # so that the float does not overflow
        longest = MAX_SHARED_DELAY if shared else MAX_DELAY
        delay = min(longest, FIRST_DELAY * 2.0**doublings) if self.deaths else 0.0
        self.deaths += 1
        self.start_at = now + delay

    def revive(self, now: float) -> None:
        """Schedule a start now, even if the slot was given up."""
        self.attempts, self.given_up, self.start_at = 0, None, now
