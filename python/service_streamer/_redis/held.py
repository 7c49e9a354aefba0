"""The entries of the queue that this worker has: from their arrival until they are acknowledged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .._threads import Bell, original


class Entry(NamedTuple):
    """One of them: some items of one request."""

    id: bytes
    """in the queue"""
    client: bytes
    request: int
    begin: int
    items: int
    deadline: int
    """in ms on the broker's clock; 0: none"""


class Held:
    """Which entries are here, by numbers of our own. Any thread; rings when it gets fewer."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._lock = original("_thread", "allocate_lock")()
        self._unanswered: dict[int, Entry] = {}
        self._numbers: dict[bytes, int] = {}  # of all
        self._last = 0
        self.unanswered_items = 0
        """that a model still has to see, all together"""

    def add(self, entries: Iterable[Entry]) -> list[int]:
        """Take entries; return the number of each, or 0 for one that is here already."""
        added = []
        with self._lock:
            for entry in entries:
                if entry.id in self._numbers:
                    added.append(0)
                    continue
                self._last += 1
                self._unanswered[self._last] = entry
                self._numbers[entry.id] = self._last
                self.unanswered_items += entry.items
                added.append(self._last)
        return added

    def answer(self, numbers: Iterable[int]) -> list[Entry | None]:
        """Note that entries have their answers; return each; None: it is not here any more."""
        with self._lock:
            entries = [self._unanswered.pop(number, None) for number in numbers]
            self.unanswered_items -= sum(entry.items for entry in entries if entry is not None)
        self._bell.ring()
        return entries

    def ids(self) -> list[bytes]:
        """Return all of them."""
        with self._lock:
            return list(self._numbers)

    def here(self, ids: Iterable[bytes]) -> list[bytes]:
        """Return those of some that are here."""
        with self._lock:
            return [each for each in ids if each in self._numbers]

    def remove(self, ids: Iterable[bytes]) -> list[int]:
        """Let entries go; return the numbers that they had."""
        removed = []
        with self._lock:
            for entry_id in ids:
                number = self._numbers.pop(entry_id, 0)
                if not number:
                    continue
                removed.append(number)
                entry = self._unanswered.pop(number, None)
                if entry is not None:
                    self.unanswered_items -= entry.items
        if removed:
            self._bell.ring()
        return removed

    def __len__(self) -> int:
        return len(self._numbers)
