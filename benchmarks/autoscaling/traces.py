"""Traces of load: how many requests arrive in each second, made from a seed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

STEP = 10.0  # seconds of one rate
HOUR = 3600.0
Rates = np.ndarray


@dataclass(frozen=True)
class Trace:
    """Load over time. Rates are in pods: 1 is what one pod with full batches can answer.

    Attributes:
        name: for tables and pictures.
        rates: of requests of priority 0 and higher, one for each `STEP`.
        seed: of the arrivals.
        bulk: requests of a priority below 0 that arrive together: their time and number, in
            seconds of work for one pod.
    """

    name: str
    rates: Rates
    seed: int
    bulk: tuple[tuple[float, float], ...] = field(default=())

    @property
    def duration(self) -> float:
        """Its length in seconds."""
        return len(self.rates) * STEP

    def arrivals(self, capacity: float) -> np.ndarray:
        """Return the sorted times of a Poisson process with these rates.

        Args:
            capacity: requests per second of one pod.
        """
        rng = np.random.default_rng(self.seed)
        counts = rng.poisson(self.rates * capacity * STEP)
        starts = np.repeat(np.arange(len(counts)) * STEP, counts)
        return np.sort(starts + rng.uniform(0, STEP, len(starts)))


def diurnal(seed: int, *, hours: float = 6.0, night: float = 0.3, noon: float = 6.0) -> Trace:
    """A day, by default four times as fast, with slow random changes of 10 %."""
    rng = np.random.default_rng(seed)
    times = np.arange(int(hours * HOUR / STEP)) * STEP
    day = (0.5 - 0.5 * np.cos(2 * np.pi * times / (hours * HOUR))) ** 1.5
    return Trace("diurnal", (night + (noon - night) * day) * _drift(rng, len(times)), seed)


def bursts(seed: int, *, hours: float = 4.0, base: float = 0.6, top: float = 5.0) -> Trace:
    """A low load with bursts of 3 to 12 minutes, each up to `top`, which come within 10 s."""
    rng = np.random.default_rng(seed)
    rates = np.full(int(hours * HOUR / STEP), base)
    now = rng.uniform(300, 1200)
    while now < hours * HOUR:
        first, length = int(now / STEP), int(rng.uniform(180, 720) / STEP)
        rates[first : first + length] = rng.uniform(0.4, 1.0) * top
        now += length * STEP + rng.uniform(900, 2700)
    return Trace("bursts", rates * _drift(rng, len(rates)), seed)


def visits(seed: int, *, hours: float = 4.0, top: float = 2.5) -> Trace:
    """Nothing, and now and then 5 to 20 minutes of load; in between one large bulk job."""
    rng = np.random.default_rng(seed)
    rates = np.zeros(int(hours * HOUR / STEP))
    now, gaps = rng.uniform(300, 900), []
    while now < hours * HOUR:
        first, length = int(now / STEP), int(rng.uniform(300, 1200) / STEP)
        rates[first : first + length] = rng.uniform(0.2, 1.0) * top
        gap = rng.uniform(1200, 3600)
        gaps.append(now + length * STEP + gap / 2)
        now += length * STEP + gap
    bulk = ((gaps[len(gaps) // 2], 1200.0),)
    return Trace("visits", rates * _drift(rng, len(rates)), seed, bulk)


def _drift(rng: np.random.Generator, steps: int) -> Rates:
    """Factors about 1 that forget in five minutes, with a standard deviation of 0.1."""
    keep = float(np.exp(-STEP / 300))
    noise = rng.normal(0, 0.1 * np.sqrt(1 - keep * keep), steps)
    value, values = 0.0, np.empty(steps)
    for i, each in enumerate(noise.tolist()):
        value = keep * value + each
        values[i] = value
    return np.exp(values)
