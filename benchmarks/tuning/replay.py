"""Searches in measurements of a whole grid, as `service-streamer tune` searches on a machine."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from service_streamer._commands.tune.search.front import FINALISTS, finalists
from service_streamer._commands.tune.search.rates import Point
from service_streamer._commands.tune.search.search import Search
from service_streamer._commands.tune.search.space import Settings, Space

SHARE = 0.2  # of the settings: the most that a search may try


@dataclasses.dataclass(frozen=True)
class Measured:
    """What one trial without an early end has shown."""

    peak: float
    """answers/s of the closed loop"""
    rate: float
    """the largest rate that kept the target; 0: none did"""
    least_p99: float
    """the smallest p99 of all loads, in seconds"""


class Grid:
    """The measurements of one model: `kept` is a value of results/tune.json."""

    def __init__(self, kept: Mapping[str, Any]) -> None:
        self.slo: float = kept["slo"]
        self.space = Space(**kept["space"])
        names = [field.name for field in dataclasses.fields(Settings)]
        self.measured = {
            Settings(**dict(zip(names, settings, strict=True))): Measured(*figures)
            for settings, *figures in kept["measured"]
        }
        self.best = max(each.rate for each in self.measured.values())

    @property
    def trials(self) -> int:
        """The trials of a search that has fewer than `SHARE` of all runs, with its last ones."""
        return int(SHARE * len(self.measured) - 1e-9) - FINALISTS

    def search(self, seed: int) -> Search:
        """Search, and return what was tried."""
        search = Search(self.space, self.slo, trials=self.trials, seed=seed)
        search.run(self._start)
        return search

    def ratio(self, search: Search) -> float:
        """Return the rate of the settings that the command would choose, by the best of all."""
        chosen = finalists(search.trials, self.slo)
        return max((self.measured[t.settings].rate for t in chosen), default=0.0) / self.best

    @contextlib.contextmanager
    def _start(self, settings: Settings) -> Iterator[Replayed]:
        yield Replayed(self.measured[settings], self.slo)


@dataclasses.dataclass
class Replayed:
    """A load that shows again what was measured."""

    measured: Measured
    slo: float
    loads: int = 0

    def closed(self) -> Point:
        self.loads += 1
        return Point(16, self.measured.peak, max(self.measured.least_p99, self.slo), closed=True)

    def open(self, rate: float) -> Point:
        self.loads += 1
        if rate <= self.measured.rate:
            return Point(rate, rate, 0.9 * self.slo, in_time=rate)
        p99 = max(self.measured.least_p99, 1.2 * self.slo)
        return Point(rate, min(rate, self.measured.peak), p99, in_time=self.measured.rate)
