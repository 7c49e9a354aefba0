"""RedisStreamer and RedisWorker: what travels between them, and what stays at the broker of it."""

import os
import signal
import subprocess
import sys

import pytest
from asking import Asking
from process_models import double_after_a_while
from waits import LONG, eventually

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER
from redis_tools import Queue

from service_streamer._redis import protocol
from service_streamer._redis.client import sender, session
from service_streamer._redis.connection.broker import Connection
from service_streamer._redis.gateway import commands

pytest_plugins = ["redis_fixtures"]
pytestmark = NEEDS_SERVER


def calls(server):
    """How often commands were run, by their names."""
    found = server.client().info("commandstats").items()
    return {name.removeprefix("cmdstat_"): about["calls"] for name, about in found}


# ------------------------------------------------------------------ round trips


def test_what_has_accumulated_travels_in_one_round_trip(make, workers, servers, monkeypatch):
    server = servers()
    trips = []
    pipeline = Connection.pipeline

    def counting(connection, commands):
        requests = sum(isinstance(command, bytes) for command in commands)
        if requests:
            trips.append(requests)
        return pipeline(connection, commands)

    monkeypatch.setattr(Connection, "pipeline", counting)
    streamer = make(server)
    server.freeze()
    futures = [streamer.submit([i]) for i in range(100)]
    server.thaw()
    workers(server=server)
    assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(100)]
    assert sum(trips) == 100
    assert len(trips) <= 2  # the first may have begun before the others were there


def test_many_large_requests_travel_in_several_round_trips(make, workers, monkeypatch):
    monkeypatch.setattr(sender, "FLUSH_BYTES", 1000)
    pipeline, sent = Connection.pipeline, []

    def counting(connection, given):
        requests = [len(each) for each in given if isinstance(each, bytes)]
        sent.append((len(requests), sum(requests)))
        return pipeline(connection, given)

    monkeypatch.setattr(Connection, "pipeline", counting)
    streamer = make()
    futures = [streamer.submit(["x" * size]) for size in (5000, *[300] * 20)]
    workers()
    assert [len(future.result(LONG)[0]) for future in futures] == [10_000, *[600] * 20]
    assert max(size for requests, size in sent if requests > 1) < 2000


def test_the_answers_of_a_batch_are_one_reply_for_each_client(make, workers, servers, process_gate):
    server = servers()
    worker = workers(process_gate, server=server, batch_size=8)
    both = make(server), make(server)
    first = both[0].submit(["first"])
    process_gate.wait_entered()
    futures = [streamer.submit([i]) for i in range(4) for streamer in both]
    eventually(lambda: worker.queued == 8)
    before = calls(server)
    process_gate.open()
    assert first.result(LONG) == ["firstfirst"]
    assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(4) for _ in both]
    after = calls(server)
    assert [len(batch) for batch in process_gate.batches] == [1, 8]
    assert after["xadd"] - before["xadd"] <= 1 + 2
    for name in ("exec", "xack", "xdel"):
        assert after[name] - before.get(name, 0) <= 2


# ---------------------------------------------------------------- what is large


# ---------------------------------------------------- clients that never read

SENDS = """
import sys
from service_streamer import RedisStreamer
from service_streamer._redis.client import backend as client
client.INTERRUPT_AFTER = 30  # s to take back what is at the broker
with RedisStreamer(sys.argv[1], sys.argv[2]) as streamer:
    futures = [streamer.submit([i]) for i in range(200)]
    sys.stdin.readline()
    print([future.result(30) for future in futures] == [[2 * i] for i in range(200)])
"""


def test_a_client_that_is_stopped_costs_others_nothing_and_finds_its_answers(
    make, workers, server, prefix, queue, process_gate
):
    workers(process_gate, batch_size=8)
    other = make()
    other.wait_ready(LONG)  # the worker forks no more
    command = [sys.executable, "-c", SENDS, server.address, prefix]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as stopped:
        try:
            eventually(lambda: len(queue) == 200)
            replies = queue.keys.replies(queue.requests()[0].client)
            os.kill(stopped.pid, signal.SIGSTOP)
            process_gate.open()
            asking = Asking(other)
            asking.wait_for_more()
            asking.stop()
            eventually(lambda: len(queue) == 0)
            # as many as batches, and for so long
            assert 0 < queue.redis.xlen(replies) <= 200
            assert 0 < queue.redis.pttl(replies) <= protocol.REPLY_EXPIRY_MS
            os.kill(stopped.pid, signal.SIGCONT)
            said, _ = stopped.communicate("\n", timeout=LONG)
        finally:
            stopped.kill()
    assert said == "True\n"
    assert not queue.redis.exists(replies)


def test_unread_answers_expire(make, workers, raw_clients, queue, monkeypatch):
    monkeypatch.setattr(commands, "REPLY_EXPIRY_MS", 200)
    silent = raw_clients()
    silent.send(*[[i] for i in range(500)])
    worker = workers()
    assert make().predict([1], timeout=LONG) == [2]
    eventually(lambda: worker.counts.answered >= 501)
    assert len(queue) == 0
    eventually(lambda: not queue.redis.exists(silent.reply_key))


# ------------------------------------------------------------------- many cancels


def test_thousands_of_cancels_leave_few_notices_and_every_other_answer(
    make, workers, servers, prefix, monkeypatch
):
    monkeypatch.setattr(session, "NOTICES", 20)
    notices = []

    def counting(keys, entries):
        notices.append(len(entries))
        return session.notice(keys, entries)

    monkeypatch.setattr(sender, "notice", counting)
    server = servers(stream_node_max_entries=10)  # what is trimmed at a time
    worker = workers(double_after_a_while, server=server, batch_size=4)
    asking = Asking(make(server))
    streamer = make(server)

    def cancel_many():
        futures = [streamer.submit([i]) for i in range(50)]
        assert futures[0].result(LONG) == [0]
        for future in futures[1:]:
            future.cancel()
        for i, future in enumerate(futures):
            assert future.cancelled() or future.result(LONG) == [2 * i]
        trimmed = len(notices) > 40
        return trimmed and streamer.stats().cancelled > 1000 and worker.counts.cancelled > 0

    eventually(cancel_many, 2 * LONG)
    asking.wait_for_more()
    asking.stop()
    queue = Queue(server, prefix)
    assert queue.redis.xlen(queue.keys.cancellations) <= 20 + 10
    eventually(lambda: len(queue) == 0)
    assert worker.error is None
