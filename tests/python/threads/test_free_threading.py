"""Threads that share futures and engines, also on a Python without a GIL."""

import concurrent.futures
import os
import subprocess
import sys
import threading

import pytest
from free_threading import FREE_THREADED
from waits import LONG

from service_streamer import ThreadedStreamer

pytestmark = pytest.mark.every_python


def fifths_fail(items):
    return [ValueError(item) if item % 5 == 0 else [item] for item in items]


def in_threads(count, function):
    """Calls the function in several threads at a time; returns what they returned."""
    start = threading.Barrier(count)

    def run():
        start.wait(LONG)
        return function()

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return [each.result(LONG) for each in [pool.submit(run) for _ in range(count)]]


@pytest.mark.skipif(not FREE_THREADED, reason="there is a GIL")
def test_the_import_leaves_the_gil_off():
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    code = "import service_streamer, sys; print(sys._is_gil_enabled())"
    run = [sys.executable, "-W", "error", "-c", code]
    assert subprocess.check_output(run, env=environment, text=True, timeout=LONG) == "False\n"


@pytest.mark.parametrize(
    "options", [{}, {"key": lambda item: item % 3}, {"output": "batch"}], ids=["", "key", "batch"]
)
def test_threads_that_share_futures_see_one_end_of_each(options):
    callers = 4
    calls = []
    # Two threads answer parts of each request, for a batch has fewer items.
    with ThreadedStreamer(fifths_fail, batch_size=4, worker_num=2, **options) as streamer:
        requests = [[number + 1, number + 2, number + 3] * 2 for number in range(0, 2000, 4)]
        futures = [streamer.submit(request) for request in requests]

        def share():
            ends = []
            for future in futures:
                future.add_done_callback(calls.append)
                concurrent.futures.wait([future], LONG)
                ends.append(future.exception(LONG) or future.result())
            return ends

        seen = in_threads(callers, share)
    for request, future, ends in zip(requests, futures, zip(*seen, strict=True), strict=True):
        assert all(end is ends[0] for end in ends)
        bad = any(item % 5 == 0 for item in request)
        assert isinstance(ends[0], ValueError) if bad else ends[0] == [[item] for item in request]
        assert calls.count(future) == callers


def test_no_callback_is_lost_that_is_added_while_the_request_ends():
    calls = []
    with ThreadedStreamer(fifths_fail, batch_size=4, worker_num=2) as streamer:

        def ask():
            added = 0
            for _ in range(300 if FREE_THREADED else 20):
                future = streamer.submit([1])
                for _ in range(1000):  # the end may take long on a busy machine
                    if future.done():
                        break
                    future.add_done_callback(calls.append)
                    added += 1
            return added

        added = sum(in_threads(3, ask))
    assert len(calls) == added


def test_equal_items_of_threads_run_once():
    callers = 4
    gates = [threading.Event() for _ in range(1000 if FREE_THREADED else 20)]
    barrier = threading.Barrier(callers)
    seen = []

    def once(items):
        assert gates[items[0]].wait(LONG)
        seen.extend(items)
        return items

    with ThreadedStreamer(once, batch_size=4, coalesce=True) as streamer:

        def ask():
            for number, gate in enumerate(gates):
                barrier.wait(LONG)
                future = streamer.submit([number])
                barrier.wait(LONG)
                gate.set()
                assert future.result(LONG) == [number]

        in_threads(callers, ask)
        assert streamer.stats().coalesced == (callers - 1) * len(gates)
    assert seen == list(range(len(gates)))


def test_requests_that_are_cancelled_while_they_run_end_once():
    with ThreadedStreamer(fifths_fail, batch_size=4, worker_num=2) as streamer:

        def ask():
            ends = 0
            for number in range(1, 2000, 5):
                future = streamer.submit([number] * 6)
                future._abandon() if number % 2 else future.cancel()
                ends += future.cancelled() or future.result(LONG) == [[number]] * 6
            return ends

        assert in_threads(4, ask) == [400] * 4
        stats = streamer.stats()
    assert stats.completed + stats.cancelled == 1600
