"""Requests of a priority below 0 over Redis: they have their own stream, and delay no others."""

import pytest
from waits import LONG, eventually

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER

from service_streamer import QueueFull
from service_streamer._redis.protocol import GROUP, Keys

pytest_plugins = ["redis_fixtures"]
pytestmark = [*NEEDS_SERVER, pytest.mark.often]

MANY = 300


@pytest.fixture
def bulk_length(queue):
    return lambda: queue.redis.xlen(queue.keys.bulk.key)


@pytest.fixture
def bulk_pending(queue):
    return lambda: queue.redis.xpending(queue.keys.bulk.key, GROUP)["pending"]


def unanswered(worker, stream):
    """The items of a stream that a worker has."""
    return worker.consumer.leases.unanswered_items(stream.suffix)


def test_bulk_requests_delay_others_by_one_batch(make, workers, queue, process_gate):
    worker = workers(process_gate, batch_size=4)
    streamer = make()
    bulk = [streamer.submit([f"bulk{i}"], priority=-1) for i in range(MANY)]
    process_gate.wait_entered()
    eventually(lambda: unanswered(worker, queue.keys.bulk) >= 8)
    urgent = [make().submit([f"urgent{i}"]) for i in range(3)]
    eventually(lambda: unanswered(worker, queue.keys.main) == 3)
    process_gate.open()
    for future in urgent + bulk:
        future.result(LONG)
    first, second = process_gate.batches[:2]
    assert all(item.startswith("bulk") for item in first)
    assert {f"urgent{i}" for i in range(3)} < set(second)


def test_a_worker_has_a_bounded_number_of_bulk_requests(make, workers, queue, process_gate):
    worker = workers(process_gate, batch_size=4)
    streamer = make()
    bulk = [streamer.submit([i], priority=-1) for i in range(MANY)]
    process_gate.wait_entered()
    eventually(lambda: unanswered(worker, queue.keys.bulk) == 8)
    urgent = [streamer.submit([i]) for i in range(MANY)]
    eventually(lambda: unanswered(worker, queue.keys.main) == 8)
    assert unanswered(worker, queue.keys.bulk) == 8
    process_gate.open()
    for i, (one, other) in enumerate(zip(bulk, urgent, strict=True)):
        assert one.result(LONG) == other.result(LONG) == [2 * i]


def test_bulk_requests_that_have_waited_go_first_with_ageing(make, workers, queue, process_gate):
    streamer = make()
    urgent = [streamer.submit([i]) for i in range(MANY)]
    bulk = streamer.submit(["bulk"], priority=-1)
    worker = workers(process_gate, batch_size=1, ageing=1e-9)
    process_gate.wait_entered()
    eventually(lambda: unanswered(worker, queue.keys.bulk) == 1)
    process_gate.open()
    for future in (*urgent, bulk):
        future.result(LONG)
    assert process_gate.batches.index(["bulk"]) < 10


def test_bulk_requests_leave_others_room_in_the_queue(make, workers, queue, bulk_length):
    streamer = make(max_queue=3, overflow="reject")
    bulk = []
    with pytest.raises(QueueFull):
        bulk.extend(streamer.submit([1], priority=-1) for _ in range(100))
    eventually(lambda: bulk_length() == 3)
    urgent = [streamer.submit([2]) for _ in range(3)]
    eventually(lambda: len(queue) == 3)
    with pytest.raises(QueueFull):
        urgent.extend(streamer.submit([2]) for _ in range(100))
    workers()
    assert all(future.result(LONG) == [2] for future in bulk)
    assert all(future.result(LONG) == [4] for future in urgent)


def test_others_count_for_the_room_of_bulk_requests(make, workers, queue, bulk_length):
    streamer = make(max_queue=4)
    urgent = [streamer.submit([i]) for i in range(3)]
    eventually(lambda: len(queue) == 3)
    bulk = [streamer.submit([i], priority=-1) for i in range(2)]
    eventually(lambda: bulk_length() >= 1)
    workers()
    assert [each.result(LONG) for each in (*urgent, *bulk)] == [[0], [2], [4], [0], [2]]


def test_entries_of_both_streams_may_have_the_same_id(workers, client):
    worker = workers()
    futures, chunks = client.chunks(["a"], ["b"])
    for chunk, key in zip(chunks, (client.keys.main.key, client.keys.bulk.key), strict=True):
        client.redis.xadd(key, {"m": client.message(chunk)}, id="7-7")
    assert client.results(futures) == [["aa"], ["bb"]]
    eventually(client.is_clean)
    assert client.redis.xlen(client.keys.bulk.key) == 0
    eventually(lambda: worker.counts.answered == 2)


def test_an_older_client_sends_bulk_requests_with_the_others(workers, client):
    workers()
    assert client.results(client.send([1], [2], priority=-1)) == [[2], [4]]
    eventually(client.is_clean)


def test_signed_bulk_requests(make, workers):
    workers(secret="secret")
    assert make(secret="secret").predict([1], priority=-1, timeout=LONG) == [2]


def test_a_request_that_was_moved_to_another_stream_is_dropped(workers, raw_clients):
    worker = workers(secret="secret")
    client = raw_clients(secret="secret")
    _, (chunk,) = client.chunks([1])
    sealed = client.signer.seal(client.keys.main.key, client.message(chunk))
    client.redis.xadd(client.keys.bulk.key, {"m": sealed})
    eventually(lambda: worker.worker._gateway is not None and worker.counts.bad_signatures == 1)


def test_a_cancelled_bulk_request_leaves_the_queue_and_the_worker(
    make, workers, bulk_length, process_gate
):
    worker = workers(process_gate, batch_size=1)
    streamer = make()
    bulk = [streamer.submit([i], priority=-1) for i in range(10)]
    process_gate.wait_entered()
    eventually(lambda: worker.held == 2)
    for future in bulk[1:]:
        assert future.cancel()
    eventually(lambda: bulk_length() == 1 and worker.counts.cancelled == 1)
    process_gate.open()
    assert bulk[0].result(LONG) == [0]


def test_bulk_requests_of_a_dead_worker_are_claimed(
    make, workers, processes, bulk_pending, tmp_path, process_gate
):
    dead = processes("redis_models:Gated", model_init_args=[str(tmp_path)])
    bulk = make().submit([1], priority=-1)
    process_gate.wait_entered()
    dead.kill()
    worker = workers()
    assert bulk.result(LONG) == [2]
    assert worker.counts.claimed == 1
    eventually(lambda: bulk_pending() == 0)


def test_lost_bulk_requests_are_sent_again(make, workers, queue, bulk_length, quick_audits):
    streamer = make()
    futures = [streamer.submit([i], priority=-i) for i in range(4)]
    eventually(lambda: bulk_length() == 3 and len(queue) == 1)
    queue.redis.delete(queue.keys.bulk.key)
    eventually(lambda: bulk_length() == 3)
    assert len(queue) == 1
    workers()
    assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(4)]


def test_bulk_requests_are_counted(make, workers, process_gate):
    workers(process_gate, batch_size=1)
    streamer = make()
    futures = [streamer.submit([i], priority=-1) for i in range(5)]
    futures.append(streamer.submit([5]))
    process_gate.wait_entered()
    eventually(lambda: streamer.stats().stream.length == 6)
    stream = streamer.stats().stream
    assert (stream.bulk, len(stream.consumers)) == (5, 1)
    assert stream.pending == stream.consumers[0].pending >= 2
    assert stream.oldest_waiting > 0
    assert "5 have a priority below 0" in streamer.explain()
    process_gate.open()
    assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(6)]


def test_names_belong_to_streams():
    keys = Keys("models")
    assert keys.bulk.key == b"{ss:models}:b"
    names = [b"1-0", *keys.bulk.names([b"1-0", b"2-0"])]
    assert len({*names}) == 3
    assert keys.split(names) == [(keys.main, [b"1-0"]), (keys.bulk, [b"1-0", b"2-0"])]
    assert [keys.stream_of(name) for name in names] == [keys.main, keys.bulk, keys.bulk]
