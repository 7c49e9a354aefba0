"""Every accepted request ends exactly once, whatever many threads do to the streamer at a time.

Runs for a few seconds, or as long as SERVICE_STREAMER_STRESS_SECONDS says.
"""

import os
import random
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from waits import LONG, eventually

from service_streamer import (
    CancelledError,
    OutputSizeMismatch,
    QueueFull,
    RequestTimeout,
    StreamerClosed,
    ThreadedStreamer,
)

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("SERVICE_STREAMER_STRESS_SECONDS", "4"))
ENDS = (CancelledError, OutputSizeMismatch, RequestTimeout, StreamerClosed)


class ModelError(Exception):
    pass


def model(batch):
    """Items say what happens to their batch; everything else is doubled."""
    if "slow" in batch:
        threading.Event().wait(0.002)
    if "raise" in batch:
        raise ModelError("raise")
    if "short" in batch:
        return batch[1:]
    return [ModelError("item") if item == "error" else (item, item) for item in batch]


class Record:
    """What one request was, and how often it ended."""

    def __init__(self, items, future):
        self.items = items
        self.future = future
        self.ends = 0
        self._lock = threading.Lock()
        future.add_done_callback(self._count)

    def _count(self, future):
        with self._lock:
            self.ends += 1

    def check(self):
        assert self.future.done(), "a request never ended"
        eventually(lambda: self.ends)  # callbacks are called a moment after the end
        assert self.ends == 1, f"a request ended {self.ends} times"
        check_outcome(self.items, self.future.result)


def check_outcome(items, result):
    try:
        outputs = result()
    except ENDS:
        return
    except ModelError:
        return
    assert outputs == [(item, item) for item in items]
    assert not {"raise", "error", "short"}.intersection(items)


items = st.lists(
    st.sampled_from(["a", "b", "c", "a", "b", "c", "slow", "raise", "error", "short"]), max_size=12
)
timeouts = st.sampled_from([None, None, None, 0, 0.0005, 0.005, 10])
operations = st.lists(
    st.tuples(
        st.sampled_from(["submit", "submit", "predict", "cancel", "abandon", "result", "map"]),
        items,
        timeouts,
        st.integers(-1, 1),
    ),
    min_size=1,
    max_size=30,
)
configurations = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 8),
        "max_latency": st.sampled_from([0, 0.001, 0.01]),
        "policy": st.sampled_from(["adaptive", "greedy", "window"]),
        "max_queue": st.sampled_from([None, 4, 20]),
        "overflow": st.sampled_from(["block", "reject"]),
        "isolate_errors": st.booleans(),
        "isolation_budget": st.sampled_from([0, 8]),
    }
)
endings = st.sampled_from(["close", "drop", "abort", "close in the middle", "drop in the middle"])


def caller(streamer, operations, records, seed):
    """One thread's life."""
    rng = random.Random(seed)
    for operation, items, timeout, priority in operations:
        options = {"timeout": timeout, "priority": priority}
        try:
            if operation == "submit":
                records.append(Record(items, streamer.submit(items, **options)))
            elif operation == "predict":
                check_outcome(items, lambda i=items, o=options: streamer.predict(i, **o))
            elif operation == "map":
                check_outcome(items, lambda i=items: list(streamer.map(i, chunk_size=2)))
            elif records:
                future = rng.choice(records).future
                if operation == "cancel":
                    assert not future.cancel() or future.cancelled()
                elif operation == "abandon":
                    future._abandon()
                    assert future.done()
                else:
                    future.exception(timeout=LONG)
        except (QueueFull, RequestTimeout, StreamerClosed, CancelledError):
            pass  # not accepted, or read by `result`


def end(streamer, ending):
    streamer.close(drain="drop" not in ending, timeout=0 if ending == "abort" else LONG)


@settings(
    max_examples=25,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(configurations, st.lists(operations, min_size=1, max_size=8), endings, st.integers(0, 99))
def check(configuration, lives, ending, seed):
    streamer = ThreadedStreamer(model, **configuration)
    records, failures = [], []
    barrier = threading.Barrier(len(lives) + 1)

    def run(life, number):
        try:
            barrier.wait(LONG)
            caller(streamer, life, records, seed + number)
        except BaseException as error:
            failures.append(error)

    threads = [
        threading.Thread(target=run, args=(life, number), daemon=True)
        for number, life in enumerate(lives)
    ]
    for thread in threads:
        thread.start()
    barrier.wait(LONG)
    if "middle" in ending:
        end(streamer, ending)
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive(), "a caller hangs"
    end(streamer, ending)
    assert not failures, failures
    for record in records:
        record.check()
    stats = streamer.stats()
    ways = (stats.completed, stats.failed, stats.cancelled, stats.expired, stats.dropped)
    assert stats.submitted == sum(ways)
    assert stats.queued_items == stats.waiting_requests == 0
    assert stats.running_items == 0 or ending == "abort"


def test_every_request_ends_exactly_once():
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        check()
