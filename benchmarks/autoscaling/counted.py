"""A model that sleeps, and writes down each item that it runs. Imported by workers."""

from __future__ import annotations

import ctypes
import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from service_streamer import ManagedModel

PR_SET_TIMERSLACK = 29


class Counted(ManagedModel):
    """Sleeps `fixed` + `each` * items seconds, and returns the items, which are numbers.

    Each process writes into a file of its own in `folder`.
    """

    def init_model(self, folder: str, fixed: float, each: float, load: float = 0.0) -> None:
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
        time.sleep(load)
        self.file = os.open(Path(folder, f"{os.getpid()}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.fixed, self.each = fixed, each

    def predict(self, batch: Sequence[int]) -> list[int]:
        os.write(self.file, b"".join(b"%d\n" % item for item in batch))
        time.sleep(self.fixed + self.each * len(batch))
        return list(batch)


def runs(folder: Path) -> Counter[int]:
    """Return how often each item was run."""
    return Counter(int(line) for file in folder.iterdir() for line in file.read_text().split())
