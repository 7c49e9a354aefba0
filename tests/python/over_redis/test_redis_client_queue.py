"""RedisStreamer and the queue at the broker: when it is full, its statistics, its workers."""

import re
import threading

import pytest
from process_models import ProcessGate
from waits import LONG, eventually

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER
from redis_tools import QUICK, SLOW

from service_streamer import (
    QueueFull,
    RequestTimeout,
    StreamerClosed,
)
from service_streamer._redis import explanation, protocol, queue_stats
from service_streamer._redis.protocol import GROUP

pytest_plugins = ["redis_fixtures"]
pytestmark = NEEDS_SERVER

SOON = 0.05  # s


# ----------------------------------------------------------------- back-pressure


def test_a_full_queue_rejects(make, queue, workers):
    streamer = make(max_queue=3, overflow="reject")
    futures = []
    with pytest.raises(QueueFull) as caught:
        futures.extend(streamer.submit([1]) for _ in range(100))
    assert 3 <= len(futures) <= 6  # three there, three here
    assert caught.value.retry_after >= 0
    eventually(lambda: len(queue) == 3)
    workers()
    assert [future.result(LONG) for future in futures] == [[2]] * len(futures)


def test_a_full_queue_blocks_until_there_is_room(make, queue, workers, threads):
    streamer = make(max_queue=2)
    for i in range(8):
        threads.run(streamer.predict, [i])
    eventually(lambda: streamer.stats().waiting_requests == 4 and len(queue) == 2)
    workers()
    assert threads.join() == [[2 * i] for i in range(8)]


def test_the_requests_of_other_clients_count(make, queue, workers):
    other = make()
    futures = [other.submit([i]) for i in range(5)]
    eventually(lambda: len(queue) == 5)
    streamer = make(max_queue=5)
    first = streamer.submit([5])  # not known to be full before
    eventually(lambda: len(queue) == 6)
    second = streamer.submit([6])
    eventually(lambda: streamer.stats().queued_requests == 1)
    assert len(queue) == 6
    workers()
    assert [future.result(LONG) for future in (*futures, first, second)] == [
        [2 * i] for i in range(7)
    ]


# -------------------------------------------------------------------- statistics


def test_stats_have_the_queue_at_the_broker(make, workers, queue, process_gate):
    streamer = make()
    stats = streamer.stats().stream
    assert (stats.length, stats.pending, stats.consumers) == (0, 0, ())
    assert stats.oldest_waiting is None
    assert "python -m service_streamer redis-worker" in streamer.explain()

    futures = [streamer.submit([i]) for i in range(3)]
    eventually(lambda: streamer.stats().stream.length == 3)
    stats = streamer.stats().stream
    assert stats.pending == 0
    assert 0 <= stats.oldest_waiting < LONG

    workers(process_gate)
    process_gate.wait_entered()
    eventually(lambda: streamer.stats().stream.pending == 3)
    (consumer,) = streamer.stats().stream.consumers
    assert consumer.pending == 3
    assert consumer.idle < LONG
    text = streamer.explain()
    assert "3 requests, 3 of them" in text
    assert consumer.name[:40] in text
    process_gate.open()
    for future in futures:
        future.result(LONG)


def test_stats_have_the_requests_of_each_worker(make, workers, tmp_path, leftovers):
    gates = [ProcessGate(tmp_path / name) for name in ("a", "b") if not (tmp_path / name).mkdir()]
    leftovers.extend(gate.close for gate in gates)
    streamer = make()
    futures = [streamer.submit([i]) for i in range(60)]
    eventually(lambda: streamer.stats().stream.length == 60)
    both = []
    for number, gate in enumerate(gates, 1):
        both.append(workers(gate, batch_size=4 * number, _claim_after=100 * LONG))
        gate.wait_entered()
        eventually(lambda number=number: streamer.stats().stream.pending == (8, 24)[number - 1])
    stats = streamer.stats().stream
    assert stats.length == 60
    names = [worker.name.decode() for worker in both]
    assert {each.name: each.pending for each in stats.consumers} == dict(
        zip(names, (8, 16), strict=True)
    )
    text = streamer.explain()
    assert "60 requests, 24 of them" in text
    for name, pending in zip(names, (8, 16), strict=True):
        assert re.search(rf"^  {re.escape(name[:41])} +{pending} ", text, re.MULTILINE)
    assert "36 requests wait and 24 " in text

    for gate in gates:
        gate.open()
    assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(60)]
    eventually(lambda: [each.pending for each in streamer.stats().stream.consumers] == [0, 0])
    assert streamer.stats().completed == 60
    both[0].close()
    (left,) = streamer.stats().stream.consumers
    assert left.name == names[1]


def test_a_worker_that_has_died_is_not_waited_for_as_one_that_is_ready(
    make, workers, queue, monkeypatch
):
    monkeypatch.setattr(explanation, "CLAIM_AFTER", QUICK)
    queue.redis.xgroup_create(queue.keys.queue, GROUP, id="0", mkstream=True)
    queue.redis.xgroup_createconsumer(queue.keys.queue, GROUP, "dead")
    streamer = make()

    def silence():
        (consumer,) = streamer.stats().stream.consumers
        return consumer.idle

    eventually(lambda: silence() > QUICK)
    with pytest.raises(RequestTimeout):
        streamer.wait_ready(0)
    workers()
    streamer.wait_ready(LONG)


def test_wait_ready_waits_for_a_worker(make, workers, threads):
    streamer = make()
    with pytest.raises(RequestTimeout):
        streamer.wait_ready(SOON)
    threads.run(streamer.wait_ready, LONG)
    workers()
    assert threads.join() == [None]
    assert streamer.predict([1]) == [2]


def test_wait_ready_ends_when_the_client_is_closed(make, threads, monkeypatch):
    asked = threading.Semaphore(0)
    has_worker = queue_stats.has_worker

    def spy(*args):
        asked.release()
        return has_worker(*args)

    monkeypatch.setattr(queue_stats, "has_worker", spy)
    streamer = make()
    threads.run(streamer.wait_ready)
    for _ in range(2):  # so it has slept
        assert asked.acquire(timeout=LONG)
    streamer.close()
    (error,) = threads.join()
    assert isinstance(error, StreamerClosed)


# --------------------------------------------------------------- what is cancelled


@pytest.mark.usefixtures("long_goodbye")
@pytest.mark.parametrize("how", ["cancel", "close"])
def test_a_worker_learns_at_once_of_a_cancelled_request(make, workers, queue, process_gate, how):
    worker = workers(process_gate, batch_size=1, _claim_after=100 * LONG)  # no heartbeat comes
    streamer, other = make(), make()
    first = other.submit(["first"])
    process_gate.wait_entered()
    unwanted = streamer.submit(["unwanted"])
    eventually(lambda: len(queue) == 2 and other.stats().stream.pending == 2)
    eventually(lambda: worker.held == 2)  # else the notice is missed
    if how == "cancel":
        assert unwanted.cancel()
    else:
        streamer.close(drain=False, timeout=LONG)
    eventually(lambda: worker.counts.cancelled == 1)
    process_gate.open()
    assert first.result(LONG) == ["firstfirst"]
    assert other.predict(["next"]) == ["nextnext"]
    assert [item for batch in process_gate.batches for item in batch] == ["first", "next"]
    assert 0 < queue.redis.pttl(queue.keys.cancellations) <= protocol.NOTICE_EXPIRY_MS


def test_an_empty_notice_changes_nothing(make, workers, queue):
    worker = workers()
    streamer = make()
    for text in (b"", b"1-1", b"no entry \xff", b"0-0 " * 10_000):
        queue.redis.xadd(queue.keys.cancellations, {"m": text})
        assert streamer.predict([1]) == [2]
    assert worker.counts.cancelled == 0


@pytest.mark.usefixtures("quick_rounds")
def test_without_notices_the_heartbeat_finds_cancelled_requests(make, workers, queue, process_gate):
    queue.redis.set(queue.keys.cancellations, "not a stream")
    worker = workers(process_gate, batch_size=1, _claim_after=SLOW)
    streamer = make()
    first = streamer.submit(["first"])
    process_gate.wait_entered()
    unwanted = streamer.submit(["unwanted"])
    eventually(lambda: worker.held == 2)
    assert unwanted.cancel()
    eventually(lambda: worker.counts.cancelled == 1)
    process_gate.open()
    assert first.result(LONG) == ["firstfirst"]
    assert streamer.predict(["next"]) == ["nextnext"]
    assert [item for batch in process_gate.batches for item in batch] == ["first", "next"]
