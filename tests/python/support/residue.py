"""What processes keep: memory, descriptors and threads, for mixed.py."""

import dataclasses

from descriptors import is_block, open_files
from free_threading import FREE_THREADED

LONG = 60
# MB of memory that are no leak, but the allocator's; without a GIL each thread has some
GROWTH = 64 if FREE_THREADED else 16
EVENTS = 12  # eventfds of waiters, kept to be used again: more than are in use at a time
BLOCKS = 64  # of shared memory, kept to be used again: far more than are in use at a time


@dataclasses.dataclass
class Residue:
    """What a process has; of several, the most that one has."""

    descriptors: int = 0
    """but those of shared memory, and eventfds"""
    blocks: int = 0
    """blocks of shared memory: their number grows to what was once used at a time"""
    threads: int = 0
    megabytes: float = 0
    """memory that is not shared"""
    shared: float = 0
    """megabytes"""
    events: int = 0
    """eventfds: their number grows to what was once used at a time"""

    def __or__(self, other):
        mine, theirs = dataclasses.astuple(self), dataclasses.astuple(other)
        return Residue(*map(max, mine, theirs))

    def __str__(self):
        return (
            f"{self.descriptors} descriptors, {self.blocks} blocks, {self.threads} threads, "
            f"{self.megabytes:.1f} MB, {self.shared:.1f} MB shared, {self.events} eventfds"
        )

    @classmethod
    def of(cls, pid):
        names = open_files(pid)
        blocks = sum(map(is_block, names))
        events = sum("eventfd" in name for name in names)
        with open(f"/proc/{pid}/status") as file:
            status = dict(line.split(":", 1) for line in file)
        kilobytes = {key: int(status[key].split()[0]) for key in ("VmRSS", "RssShmem")}
        return cls(
            descriptors=len(names) - blocks - events,
            blocks=blocks,
            threads=int(status["Threads"]),
            megabytes=(kilobytes["VmRSS"] - kilobytes["RssShmem"]) / 1024,
            shared=kilobytes["RssShmem"] / 1024,
            events=events,
        )

    def growth(self, before, spare):
        """Name what there is more of than before, and more than there may be."""
        more = {
            "descriptors": self.descriptors > before.descriptors + spare,
            "threads": self.threads > before.threads,
            "memory": self.megabytes > before.megabytes + GROWTH,
            "shared memory": self.blocks > BLOCKS,
            "eventfds": self.events > EVENTS,
        }
        return [what for what, has_grown in more.items() if has_grown]
