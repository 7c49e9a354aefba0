"""The knee of the closed loop, and which batch_size and worker_num to choose."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from ..._base.system import usable_cpus
from ..._statistics.formats import count, duration
from .results import Point, Results

NEAR_BEST = 0.9  # of the highest throughput: the knee
ENOUGH = 0.95  # of the best rate: a further worker gains little
ENOUGH_ITEMS = 0.75  # of the best rate: a larger batch takes longer, for all of its requests
BUSY = 0.8  # share of its time above which a worker has no reserve


@dataclasses.dataclass(frozen=True)
class Advice:
    """A value for an option, and the reason."""

    option: str
    value: int | None
    """the number; None: it cannot be chosen from what was measured"""
    why: str

    def __str__(self) -> str:
        return (
            f"{self.option}={self.value}: {self.why}"
            if self.value
            else f"{self.option}: {self.why}"
        )


def knee(points: Sequence[Point]) -> Point | None:
    """Return the lowest load with nearly the highest throughput. None: nothing was answered."""
    most = max((point.throughput.mean for point in points), default=0.0)
    if not most:
        return None
    return next(point for point in points if point.throughput.mean >= NEAR_BEST * most)


def knee_sentence(points: Sequence[Point]) -> str:
    """Return what the knee is; empty if nothing was answered."""
    found = knee(points)
    if found is None:
        return ""
    if found is points[-1]:
        return f"There is no knee up to {clients(found)}: more may give more (--clients)."
    return (
        f"The knee is at {clients(found)}: {found.throughput.mean:,.0f} requests/s, "
        f"p50 {duration(found.latency(0.5).mean)}, p99 {duration(found.latency(0.99).mean)}. "
        "More clients gain less than 10 %."
    )


def clients(point: Point) -> str:
    """Return the load of a closed loop in words."""
    return count(round(point.load), "client")


def limit_sentence(results: Results) -> str:
    """Return which loads of the closed loop keep the limit of p99; empty without a limit."""
    limit = results.p99_limit
    if limit is None or not results.closed:
        return ""
    kept = list(itertools.takewhile(lambda p: p.latency(0.99).mean <= limit, results.closed))
    up_to = f"with up to {clients(kept[-1])}" if kept else "with no number of clients"
    return f"p99 is at most {duration(limit)} {up_to}."


def advise(results: Results) -> list[Advice]:
    """Return what to choose."""
    return [_batch_size(results), _worker_num(results)]


def _batch_size(results: Results) -> Advice:
    model, option = results.model, "batch_size"
    if not model:
        why = "the target does not report its batches"
        if results.batch_size is not None:
            why = "the model alone was not measured"
        return Advice(option, None, f"unknown, because {why}")
    limit = results.p99_limit
    # Under full load a request waits for the batch that runs, and then for its own.
    fast = model if limit is None else [each for each in model if 2 * each.seconds <= limit]
    if limit is not None and not fast:
        why = f"two batches of {model[0].size:.0f} take longer than the limit of {duration(limit)}"
        return Advice(option, None, f"none keeps p99: {why}.")
    best = max(fast, key=lambda each: each.rate)
    chosen = next(each for each in fast if each.rate >= ENOUGH_ITEMS * best.rate)
    size = round(chosen.size)
    why = f"a batch of {size} takes {duration(chosen.seconds)}, {chosen.rate:,.0f} items/s"
    if best is chosen:
        why += ", the most of all sizes that were tried"
        if chosen is model[-1]:
            why += "; larger ones may be faster still"
        elif chosen is fast[-1]:
            why += " of which two batches keep the limit of p99"
    else:
        share = chosen.rate / best.rate
        most = f"{best.rate:,.0f} items/s with {count(round(best.size), 'item')}"
        why += f"; that is {share:.0%} of the {most}"
    reached = max((max(point.batch_sizes, default=0) for point in results.closed), default=0)
    if reached < min(size, results.batch_size or size):
        why += f". No batch of the closed loop had more than {count(reached, 'item')}: it needs "
        why += "more clients"
    if limit is None:
        why += (
            ". A request that waits for the running batch takes up to "
            f"{duration(2 * chosen.seconds)}. Give --p99-limit for less"
        )
    return Advice(option, size, why + ".")


def _worker_num(results: Results) -> Advice:
    option, workers = "worker_num", results.workers
    if results.by_workers:
        return _from_fewer(results.by_workers)
    best = max(results.closed, key=lambda point: point.throughput.mean, default=None)
    if best is None or best.busy is None or workers is None:
        return Advice(option, None, "unknown, because the target does not report its workers")
    at = f"at {clients(best)} the workers are busy {best.busy:.0%} of the time"
    if best.busy >= BUSY:
        more = "more may give more, if there are GPUs or cores left"
        return Advice(option, workers, f"{at}, so no worker has a reserve; {more} (--workers).")
    needed = max(1, min(workers, -int(-workers * best.busy // BUSY)))
    return Advice(option, needed, f"{at}, so the callers are the limit, not the workers.")


def _from_fewer(points: Sequence[Point]) -> Advice:
    ascending = sorted(points, key=lambda point: point.load)
    best = max(point.throughput.mean for point in points)
    chosen = next(each for each in ascending if each.throughput.mean >= ENOUGH * best)
    rates = ", ".join(f"{p.load:.0f}: {p.throughput.mean:,.0f}" for p in ascending)
    why = f"requests/s by workers: {rates}"
    if chosen is ascending[-1]:
        cores = count(len(usable_cpus()), "core")
        why += f". More may give more, if there are GPUs or cores left ({cores} here)"
    return Advice("worker_num", int(chosen.load), why + ".")
