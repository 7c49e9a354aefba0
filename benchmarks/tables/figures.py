"""The figures of the tables: their sources and their targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from measurements import BROKER, ORIGINALS

Medians = Mapping[str, Mapping[str, Mapping[str, float]]]
# mosec has a single server, whatever framework ours uses: measured once, shown twice.
# So has the broker alone: it is the limit of all cases with 128 requests at a time.
MEASURED_UNDER = {
    ("asgi-model", "mosec"): "fastapi",
    ("redis-asyncio-noop-128", BROKER): "redis-noop-128",
    ("redis-noop-forked", BROKER): "redis-noop-128",
}
Check = Callable[["Results", float], bool]


@dataclass(frozen=True)
class Results:
    """The medians by case, peer and metric."""

    medians: Medians

    def get(self, case: str, peer: str, metric: str) -> float | None:
        case = MEASURED_UNDER.get((case, peer), case)
        return self.medians.get(case, {}).get(peer, {}).get(metric)

    def best(
        self, case: str, peers: tuple[str, ...], metric: str, low: bool = False
    ) -> float | None:
        values = [v for peer in peers if (v := self.get(case, peer, metric)) is not None]
        return (min if low else max)(values) if values else None


@dataclass(frozen=True)
class Figure:
    """One number of a row. The unit is "ms" or "count" (lower is better), "/s" or "x" (higher)."""

    case: str
    metric: str
    unit: str
    check: Check
    ours: str = "ours"
    originals: tuple[str, ...] = ORIGINALS
    label: str = ""  # shown after the number

    @property
    def is_ours_only(self) -> bool:
        """A variant of ours (greedy) next to a figure that already shows the peers."""
        return self.ours != "ours"

    @property
    def low(self) -> bool:
        return self.unit in ("ms", "count")

    def our_value(self, results: Results) -> float | None:
        return results.get(self.case, self.ours, self.metric)

    def is_reached(self, results: Results) -> bool | None:
        """None if it was not measured. A web server that answered with errors fails the target."""
        ours = self.our_value(results)
        if ours is None:
            return None
        _, at, connections = self.metric.partition("@")
        if at and results.get(self.case, self.ours, f"errors@{connections}"):
            return False
        return self.check(results, ours)

    def original_value(self, results: Results) -> float | None:
        return results.best(self.case, self.originals, self.metric, self.low)


@dataclass(frozen=True)
class Row:
    name: str
    target: str
    figures: tuple[Figure, ...]
    peers: tuple[str, ...] = ()

    def reached(self, results: Results) -> bool | None:
        """None if a figure was not measured and all others reach their targets."""
        verdicts = [figure.is_reached(results) for figure in self.figures]
        if any(verdict is False for verdict in verdicts):
            return False
        return None if None in verdicts else True


def at_most(limit: float) -> Check:
    return lambda _, ours: ours <= limit


def at_least(limit: float) -> Check:
    return lambda _, ours: ours >= limit


def informative(_: Results, ours: float) -> bool:
    return True


def rate(case: str, reach: float, metric: str = "per_s") -> Figure:
    return Figure(case, metric, "/s", at_least(reach))
