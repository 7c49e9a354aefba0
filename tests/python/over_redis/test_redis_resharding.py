"""RedisStreamer and RedisWorker in a cluster whose slots are moved while requests run."""

import threading

import pytest
from asking import Asking
from process_models import double_after_a_while
from waits import LONG, eventually

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER
from redis_tools import new_prefix

from service_streamer._redis.protocol import Keys

pytest_plugins = ["redis_fixtures", "redis_places"]
pytestmark = NEEDS_SERVER

CALLERS = 4


def redirections(node):
    """How often it has said that a key is about to be at the other one."""
    return node.info("errorstats").get("errorstat_ASK", {"count": 0})["count"]


def test_requests_and_cancels_survive_a_slot_that_moves_there_and_back(
    places, make, workers, threads
):
    place, prefix = places("cluster"), new_prefix()
    keys = Keys(prefix)
    worker = workers(double_after_a_while, server=place, prefix=prefix)
    streamer = make(place.url, prefix=prefix)
    over = threading.Event()

    def ask_and_cancel():
        while not over.is_set():
            futures = [streamer.submit([i]) for i in range(30)]
            assert futures[0].result(LONG) == [0]
            for future in futures[1:]:
                future.cancel()
            for i, future in enumerate(futures):
                assert future.cancelled() or future.result(LONG) == [2 * i]

    threads.run(ask_and_cancel)
    asking = Asking(streamer, CALLERS)
    asking.wait_for_more()
    kept = []
    for _ in range(2):
        source = place.client(keys)
        for step in place.moving(keys):
            if step == "opened":
                asking.wait_for_more()
                continue
            asked = redirections(source)
            eventually(lambda source=source, asked=asked: redirections(source) > asked + 2)
            futures = [streamer.submit([i]) for i in range(20)]
            assert all(future.cancel() for future in futures[::2])
            kept += futures[1::2]
        asking.wait_for_more()
    over.set()
    asking.stop()
    assert threads.join() == [None]
    assert [future.result(LONG) for future in kept] == [[2 * i] for i in range(1, 20, 2)] * 2
    eventually(lambda: place.client(keys).xlen(keys.queue) == 0)
    assert worker.error is None
