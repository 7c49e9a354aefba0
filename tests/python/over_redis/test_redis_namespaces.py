"""RedisStreamer between machines, as Linux' namespaces play them: cut networks, other clocks."""

import contextlib
import shutil
import subprocess
import sys
import time

import pytest
from scripts import SUPPORT
from waits import LONG, eventually

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER
from redis_tools import ProcessWorker, Queue, RawClient, new_prefix

from service_streamer import RedisStreamer

AHEAD = 1_000_000  # s that the clock of one machine is ahead of the other's
HOUR = 3600  # s


def can_unshare(*namespace):
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    tried = subprocess.run(["unshare", *namespace, "true"], capture_output=True, check=False)
    return tried.returncode == 0


NETWORK = ("--net",)
CLOCK = ("--time", "--monotonic", str(AHEAD))

pytestmark = NEEDS_SERVER


@pytest.mark.endurance
@pytest.mark.skipif(not can_unshare(*NETWORK), reason="network namespaces are not permitted")
def test_five_seconds_without_a_network_cost_only_time():
    command = ["unshare", *NETWORK, sys.executable, "redis_cut_network.py"]
    done = subprocess.run(command, cwd=SUPPORT, capture_output=True, text=True, timeout=4 * LONG)
    assert done.returncode == 0, done.stderr
    before, during, after = map(int, done.stdout.split())
    assert before > 0
    assert during <= 8, "only what each caller had on its way came through the cut"
    assert after > 0


@pytest.mark.skipif(not can_unshare(*CLOCK), reason="time namespaces are not permitted")
def test_deadlines_hold_between_machines_whose_clocks_differ(shared_redis_server):
    server, prefix = shared_redis_server, new_prefix()
    worker = ProcessWorker("redis_models:double", server, prefix, under=["unshare", *CLOCK])
    client = RawClient(server, prefix)
    try:
        with RedisStreamer(server.address, prefix) as streamer:
            assert streamer.predict([1], timeout=LONG) == [2]
        client.send([2], deadline=-LONG)  # what the worker thinks of the clock is not that exact
        assert client.results(client.send([3], deadline=LONG)) == [[6]]
        eventually(client.is_clean)
        assert client.accepted == 1, "what had expired was answered"
    finally:
        client.close()
        worker.close()


@pytest.mark.parametrize("ahead", [-HOUR, HOUR])
@pytest.mark.parametrize("side", ["client", "worker"])
def test_wall_clocks_that_differ_change_nothing(shared_redis_server, monkeypatch, side, ahead):
    server, prefix = shared_redis_server, new_prefix()
    queue = Queue(server, prefix)
    of_worker = ahead if side == "worker" else 0
    if side == "client":
        wall_clock = time.time
        monkeypatch.setattr(time, "time", lambda: wall_clock() + ahead)

    def now():
        seconds, micros = queue.redis.time()
        return seconds * 1000 + micros // 1000

    with contextlib.ExitStack() as stack:
        client = stack.enter_context(contextlib.closing(RawClient(server, prefix)))
        streamer = stack.enter_context(RedisStreamer(server.address, prefix))
        before = now()
        future = streamer.submit([1], timeout=LONG)
        eventually(lambda: len(queue) == 1)
        (waiting,) = queue.requests()
        assert abs(waiting.sent - before) < LONG * 1000
        assert 0 < waiting.deadline - before < 2 * LONG * 1000
        _, (expired,) = client.chunks([2])
        client.post(client.message(expired, now() - LONG * 1000, sent=now()))
        _, (late,) = client.chunks([3])
        client.post(client.message(late, now() + LONG * 1000, sent=now()))
        worker = ProcessWorker("redis_models:double", server, prefix, wall_clock_ahead=of_worker)
        stack.callback(worker.close)
        assert future.result(LONG) == [2]
        eventually(client.is_clean)
        while client.read(0.01):
            pass
        assert client.accepted == 1, "of one that had expired, and one that had not"
