"""Native models under a mixed load: every request ends in an allowed way, without memory leaks.

Runs for a few seconds; SERVICE_STREAMER_STRESS_SECONDS=600 for a soak.
"""

import gc
import os
import random
import resource
import threading
import time

import pytest
from native_models import SEQUENCES
from waits import LONG

from service_streamer import CancelledError, QueueFull, RequestTimeout, StreamerClosed

pytest_plugins = ["native_fixtures"]
pytestmark = [pytest.mark.torch, pytest.mark.endurance]

SECONDS = float(os.environ.get("SERVICE_STREAMER_STRESS_SECONDS", "4"))
CALLERS = 4
ENDS = (CancelledError, QueueFull, RequestTimeout, StreamerClosed)
GROWTH = 16 << 20  # bytes that allocators may retain


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


class Load:
    """Callers of two models, which are closed and recreated during the calls."""

    def __init__(self, torch, make):
        self._torch = torch
        self._make = make
        self._streamers = make()
        self.over = False
        self.answered = self.raised = self.ended = 0
        self._lock = threading.Lock()

    def renew(self):
        """Close a streamer while it works."""
        old, self._streamers = self._streamers, self._make()
        for streamer in old:
            streamer.close(drain=random.random() < 0.5, timeout=LONG)

    def call(self, seed):
        """The loop of one caller."""
        rng = random.Random(seed)
        while not self.over:
            ask = rng.choice((self._ask_picky, self._ask_sequences))
            try:
                ask(rng)
                self._count("answered")
            except ENDS:
                self._count("ended")
            except (RuntimeError, MemoryError):
                self._count("raised")

    def close(self):
        for streamer in self._streamers:
            streamer.close(timeout=LONG)
        self._streamers = ()

    def _ask_picky(self, rng):
        picky = self._streamers[0]
        value = rng.choice((0.0, 1.0, 2.0, 5.0, 13.0, 17.0) if rng.random() < 0.2 else (1.0, 2.0))
        outputs = self._end(picky, [self._torch.full((3,), value)] * rng.choice((1, 2, 30)), rng)
        assert all(output.tolist() == [3 * value + 1] * 3 for output in outputs)
        assert value < 13

    def _ask_sequences(self, rng):
        lengths = [rng.randint(1, 16) for _ in range(rng.choice((1, 3, 20)))]
        items = [{"ids": self._torch.ones(length, dtype=self._torch.int64)} for length in lengths]
        outputs = self._end(self._streamers[1], items, rng)
        assert [output["sum"].item() for output in outputs] == lengths
        assert [len(output["seen"]) for output in outputs] == lengths

    def _end(self, streamer, items, rng):
        how = rng.choice(("predict", "predict", "submit", "deadline", "cancel", "forget"))
        if how == "deadline":
            return streamer.predict(items, timeout=rng.choice((0, 0.0002, 0.002)))
        if how == "predict":
            return streamer.predict(items, timeout=LONG)
        future = streamer.submit(items)
        if how == "cancel":
            future.cancel()
        elif how == "forget":
            raise CancelledError
        return future.result(LONG)

    def _count(self, what):
        with self._lock:
            setattr(self, what, getattr(self, what) + 1)


@pytest.mark.timeout(SECONDS + 4 * LONG)
def test_a_mixed_load_does_not_leak_memory(torch, model, threads):
    from service_streamer import ThreadedStreamer

    def make():
        sequences = model("Sequences", SEQUENCES, collate="pad", mask="mask", pad_to=(4, 16))
        return (
            ThreadedStreamer(model("Picky", workers=2), 8, max_queue=64),
            ThreadedStreamer(sequences, 8, max_latency=0.002),
        )

    load = Load(torch, make)
    for seed in range(CALLERS):
        threads.run(load.call, seed)
    begin = time.monotonic()
    sizes = []
    tick = threading.Event()
    for step in range(1, 41):
        tick.wait(max(0.0, begin + step * SECONDS / 40 - time.monotonic()))
        load.renew()
        gc.collect()
        sizes.append(resident())
    load.over = True
    assert threads.join() == [None] * CALLERS
    load.close()
    print(f"answered {load.answered:,}, raised {load.raised:,}, ended early {load.ended:,}")
    print("resident MB:", *(size >> 20 for size in sizes))
    assert min(load.answered, load.raised, load.ended) > 0
    # the first quarter is for allocators and caches to settle
    settled, last = max(sizes[5:10]), min(sizes[-5:])
    assert last - settled < GROWTH, [size >> 20 for size in sizes]
