"""The advice of explain() helps under a real load. Figures are counts, and sleeps of the model."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from step_models import Countdown
from waits import LONG

from service_streamer import QueueFull, Streamer, ThreadedStreamer

FIXED, PER_ITEM = (0.003, 0.0), (0.001, 0.005)  # s of a batch, and of each item in it


class Model:
    """Takes a time for each batch and for each item."""

    def __init__(self, cost):
        self._batch, self._item = cost

    def __call__(self, batch):
        time.sleep(self._batch + self._item * len(batch))
        return batch


def measure(until="", cost=FIXED, callers=8, think=0.0, kind=ThreadedStreamer, key=None, **options):
    """Return the statistics of callers that ask again and again, until the report says `until`.

    A busy machine makes sleeps longer, so the first rounds may show something else.
    """
    if key is not None:
        options["key"] = lambda item: item % key

    def call(number):
        rng = random.Random(number)
        for _ in range(12):
            try:
                streamer.predict([number], timeout=LONG)
            except QueueFull:
                time.sleep(0.001)
            time.sleep(think * rng.random())

    with kind(Model(cost), **options) as streamer, ThreadPoolExecutor(callers) as pool:
        streamer.wait_ready(LONG)
        deadline, said = time.monotonic() + LONG, None
        while said is None or until not in said:
            assert time.monotonic() < deadline, said
            list(pool.map(call, range(callers)))
            said = streamer.explain().splitlines()[-1]
        return streamer.stats()


def capacity(stats):
    """Items per second of workers that are always busy."""
    return stats.workers * stats.items / stats.service_time.total


def batch_size(stats):
    return stats.mean_batch_size


def answered(stats):
    return stats.completed / (stats.completed + stats.rejected)


PROCESSES = {"kind": Streamer, "mp_start_method": "fork"}

# What is said of a load, what is done about it, what grows, and at least how many times.
CASES = {
    "one item": (
        {"batch_size": 1},
        "batch_size=1 is the limit: raise it",
        {"batch_size": 8},
        (batch_size, 2.0),
    ),
    "full": (
        {"batch_size": 2},
        "batch_size=2 is the limit",
        {"batch_size": 8},
        (batch_size, 1.5),
    ),
    "full, but the time is proportional": (
        {"batch_size": 2, "cost": PER_ITEM},
        "Raise it if larger batches take less time per item",
        {"batch_size": 8},
        (capacity, 0.6),  # it does not hurt
    ),
    "proportional": (
        {"batch_size": 64, "cost": PER_ITEM, "worker_num": 1, **PROCESSES},
        "The model is the limit: its time is proportional",
        {"worker_num": 2},
        (capacity, 1.3),
    ),
    "few callers": (
        {"batch_size": 64, "callers": 3, "think": 0.02},
        "The number of callers is the limit: at most",
        {"callers": 24},
        (batch_size, 1.5),
    ),
    "few callers, and the model is always busy": (
        {"batch_size": 64, "callers": 3, "cost": (0.02, 0.0)},
        "More callers help only if larger batches take less time per item",
        {"callers": 24},
        (batch_size, 2.0),
    ),
    "keys": (
        {"batch_size": 8, "callers": 16, "key": 16},
        "The keys are the limit",
        {"key": 2},
        (batch_size, 1.5),
    ),
    "max_latency": (
        {
            "batch_size": 8,
            "callers": 16,
            "think": 0.08,
            "policy": "window",
            "max_latency": 1e-3,
        },
        "max_latency=1 ms is the limit",
        {"max_latency": 0.02},
        (batch_size, 1.5),
    ),
    "slo": (
        {"batch_size": 1, "callers": 16, "slo": 0.01},
        "slo=10 ms is the limit",
        {"slo": 2.0},
        (answered, 1.2),
    ),
}


@pytest.mark.endurance  # real times, so for a machine with nothing else to do
@pytest.mark.parametrize("name", CASES)
def test_advice_helps(name):
    load, sentence, change, (figure, times) = CASES[name]
    before = measure(sentence, **load)
    after = measure(**{**load, **change})
    assert figure(after) >= times * figure(before)


def test_a_larger_batch_size_needs_fewer_steps():
    def steps(batch_size):
        with ThreadedStreamer(Countdown(), batch_size) as streamer:
            streamer.predict([10] * 8)
            return streamer.explain().splitlines()[-1], streamer.stats().steps.steps

    said, before = steps(2)
    assert "batch_size=2 is the limit" in said
    _, after = steps(8)
    assert after < before / 2
