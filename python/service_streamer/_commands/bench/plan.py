"""The order of the measurements, within a time budget.

All loads are measured once before any is measured again, so that a slow change of the machine does
not look like an effect of the load.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Iterator
from typing import Protocol

from ..._processes.streamer import Streamer
from .load import closed_loop, open_loop
from .results import ModelTime, Point, Results, Window
from .targets import AnyTarget, BenchTarget, one_line

_MODEL_UNITS = 4  # of time, for the model alone
_WORKER_UNITS = 4  # and for fewer workers
_WARM_UP, _MEASURED = 0.2, 0.7  # of a unit; the rest is for threads to start and end
_PATIENCE = 5.0  # s after the budget; then the rest is left out
_GRACE = 2.0  # s for the requests in flight at the end of a measurement
_MARGIN = 4  # the model is tried with batches so many times larger than batch_size


class Progress(Protocol):
    """Shows how far it is."""

    def step(self, text: str) -> None:
        """Begin the next step."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is measured."""

    clients: tuple[int, ...]
    shares: tuple[float, ...]
    """rates of the open loop, as shares of the highest throughput of the closed loop"""
    repetitions: int
    seconds: float
    """the time budget"""
    p99_limit: float | None = None
    """seconds that 99 % of the answers may take; None: `batch_size` is for throughput alone"""

    @property
    def steps(self) -> int:
        """The number of steps, for the progress bar."""
        return (len(self.clients) + len(self.shares)) * self.repetitions + 2

    @property
    def unit(self) -> float:
        """The seconds of one measurement."""
        return self.seconds / (self.steps - 2 + _MODEL_UNITS + _WORKER_UNITS)


class _OutOfTime(Exception):
    """The rest of the plan is left out."""


def measure(target: AnyTarget, plan: Plan, progress: Progress) -> Results:
    """Measure a target. Takes the time of the plan, and at most `_PATIENCE` and a unit more."""
    return _Measurement(target, plan, progress).run()


class _Measurement:
    def __init__(self, target: AnyTarget, plan: Plan, progress: Progress) -> None:
        self._target = target
        self._plan = plan
        self._progress = progress
        self._until = time.perf_counter() + plan.seconds + _PATIENCE
        self._results = Results(target.name, p99_limit=plan.p99_limit)
        self._seeds = itertools.count(1)
        self._warm_up = _WARM_UP * plan.unit
        self._seconds = _MEASURED * plan.unit

    def run(self) -> Results:
        results = self._results
        stats = self._target.stats()
        if stats is not None:
            results.batch_size, results.workers = stats.batch_size, stats.workers
        try:
            self._closed_loop()
            self._open_loop()
            self._model()
            self._fewer_workers()
        except _OutOfTime:
            results.notes.append(
                "The time was over before all was measured: the target answers slowly. "
                "Give more --seconds, or fewer --clients."
            )
        for points in (results.closed, results.open, results.by_workers):
            points[:] = [point for point in points if point.samples]
        return results

    def _closed_loop(self) -> None:
        points = self._results.closed
        points += [Point(clients) for clients in self._plan.clients]
        for n in range(self._plan.repetitions):
            for point in points:
                clients = int(point.load)
                self._begin(f"closed loop, {clients} clients, round {n + 1}")
                self._measure_clients(point, clients)

    def _open_loop(self) -> None:
        most = max(point.throughput.mean for point in self._results.closed)
        points = self._results.open
        points += [Point(most * share) for share in self._plan.shares if most]
        for n in range(self._plan.repetitions):
            for point in points:
                self._begin(f"open loop, {point.load:,.0f} requests/s, round {n + 1}")
                with self._window(point):
                    sample = open_loop(
                        self._target, point.load, *self._times(), seed=next(self._seeds)
                    )
                point.samples.append(sample)

    def _measure_clients(self, point: Point, clients: int) -> None:
        with self._window(point):
            sample = closed_loop(self._target, clients, *self._times())
        point.samples.append(sample)

    def _times(self) -> tuple[float, float, float]:
        """Return warm-up, measured time and grace of the next measurement."""
        return self._warm_up, self._seconds, max(0.0, min(_GRACE, self._left()))

    @contextlib.contextmanager
    def _window(self, point: Point) -> Iterator[None]:
        """Add what the streamer has done meanwhile."""
        before = self._target.stats()
        yield
        window = Window.between(before, self._target.stats())
        if window is not None:
            point.windows.append(window)

    def _model(self) -> None:
        """Measure the model alone: one caller with requests of growing size."""
        target, size = self._target, self._results.batch_size
        self._begin("the model alone")
        if not isinstance(target, BenchTarget) or size is None:
            return
        largest = _MARGIN * size if target.is_own else size
        sizes = [n for n in (2**k for k in range(31)) if n < largest] + [largest]
        seconds = _MODEL_UNITS * self._plan.unit / len(sizes)
        try:
            if target.is_own:
                target.streamer.configure(batch_size=largest)
            for n in sizes:
                self._check_time()
                self._measure_model(target, n, seconds)
        except _OutOfTime:
            raise
        except Exception as error:  # for instance too little memory for such a batch
            self._check_time()
            self._results.notes.append(
                f"The model was not tried with more items: {one_line(error)}"
            )
        finally:
            if target.is_own:
                target.streamer.configure(batch_size=size)

    def _measure_model(self, target: BenchTarget, size: int, seconds: float) -> None:
        target.predict(size, self._left())
        before = target.stats()
        end = time.perf_counter() + seconds
        for n in itertools.count():
            if n >= 3 and time.perf_counter() >= end:
                break
            self._check_time()
            target.predict(size, self._left())
        window = Window.between(before, target.stats())
        if window is not None and window.batches:
            mean = window.items / window.batches
            self._results.model.append(ModelTime(mean, window.model_time / window.batches))

    def _fewer_workers(self) -> None:
        """Measure the best load of the closed loop again with fewer workers."""
        self._begin("fewer workers")
        target, workers = self._target, self._results.workers or 1
        if not isinstance(target, BenchTarget) or not target.is_own or workers == 1:
            return
        streamer = target.streamer
        if not isinstance(streamer, Streamer):
            return
        best = max(self._results.closed, key=lambda point: point.throughput.mean)
        points = self._results.by_workers
        points.append(Point(workers, best.samples, best.windows))
        while workers > 1:
            self._check_time()
            workers = (workers + 1) // 2 if workers > 2 else 1
            streamer.resize(workers)
            points.append(Point(workers))
            self._measure_clients(points[-1], int(best.load))

    def _begin(self, text: str) -> None:
        self._progress.step(text)
        self._check_time()

    def _left(self) -> float:
        """Return the seconds until the rest is left out."""
        return self._until - time.perf_counter()

    def _check_time(self) -> None:
        if self._left() <= 0:
            raise _OutOfTime
