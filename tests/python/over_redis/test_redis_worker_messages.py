"""RedisWorker: messages that are none, damaged, forged, too large, or of another version."""

import random
import struct

import pytest
from waits import LONG, eventually

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER
from redis_tools import SLOW, MakesAFolder, new_prefix

from service_streamer import (
    WorkerLost,
)
from service_streamer._redis.protocol import VERSION, Signer

pytest_plugins = ["redis_fixtures"]
pytestmark = NEEDS_SERVER


def test_what_is_no_message_is_dropped_counted_and_logged_once(workers, client, caplog):
    good_head = client.message((7, 0, 1, None, 0, b""))
    for foreign in (b"", b"junk", b"SS", good_head[:20], b"XX" + good_head[2:]):
        client.post(foreign)
    client.redis.xadd(client.keys.queue, {"other": "field"})
    client.redis.xadd(client.keys.queue, {"m": "two", "n": "fields"})
    worker = workers(_claim_after=SLOW)
    assert client.ask([1]) == [2]
    assert worker.counts.malformed == 7
    eventually(client.is_clean)
    told = [record for record in caplog.records if "not a request" in record.getMessage()]
    assert len(told) == 1


def test_a_request_that_is_malformed_is_refused(workers, client):
    (future,), (chunk,) = client.chunks([1, 2])
    number, begin, items, deadline, priority, body = chunk
    client.post(client.message((number, begin, items, deadline, priority, body[:-1])))
    workers()
    with pytest.raises(WorkerLost, match="cannot be read"):
        client.result(future)
    (future,), (chunk,) = client.chunks([1, 2])
    client.post(client.message((chunk[0], 0, 3, None, 0, chunk[5])))
    with pytest.raises(WorkerLost, match="2 items, not the 3"):
        client.result(future)
    assert client.ask([1]) == [2]
    eventually(client.is_clean)


def test_another_version_of_the_protocol_is_refused_by_name(workers, client):
    (future,), (chunk,) = client.chunks([1])
    message = bytearray(client.message(chunk))
    message[2] = VERSION + 1
    client.post(bytes(message))
    workers()
    with pytest.raises(WorkerLost, match=f"version {VERSION + 1}"):
        client.result(future)
    eventually(client.is_clean)


def test_a_damaged_head_ends_only_its_own_request(workers, client):
    worker = workers()
    rng = random.Random(1)
    _, (chunk,) = client.chunks([1, 2, 3])
    good = client.message(chunk)
    for _ in range(300):
        damaged = bytearray(good)
        for at in rng.sample(range(64), rng.choice([1, 1, 2, 8])):  # the head, and the counts
            damaged[at] = rng.choice([0, 1, 127, 128, 255])
        client.post(bytes(damaged))
    extreme = struct.pack("<qq", 2**63 - 1, -(2**63))
    client.post(good[:32] + extreme + good[48:])
    client.post(good[:32] + extreme[::-1] + good[48:])
    assert client.ask([1]) == [2]
    eventually(client.is_clean)
    assert worker.error is None


@pytest.mark.parametrize(("ours", "theirs"), [("right", None), ("right", "other"), (None, None)])
def test_a_forged_request_is_refused_before_it_is_unpickled(
    workers, raw_clients, tmp_path, caplog, ours, theirs
):
    mark = tmp_path / "unpickled"
    stranger, client = raw_clients(secret=theirs), raw_clients(secret=ours)
    (future,) = stranger.send([MakesAFolder(mark)])
    worker = workers(lambda batch: [None for _ in batch], secret=ours, _claim_after=SLOW)
    if ours is None:  # so it would be seen
        stranger.result(future)
        assert mark.exists()
        return
    stranger.send([MakesAFolder(mark)])
    assert client.ask([3]) == [None]
    assert worker.counts.bad_signatures == 2
    assert stranger.redis.xlen(stranger.reply_key) == 0
    eventually(client.is_clean)
    assert not mark.exists()
    assert len([r for r in caplog.records if "signature" in r.getMessage()]) == 1


def test_a_signed_request_that_is_replayed_runs_but_is_answered_once(workers, make, queue):
    streamer = make(secret="right")
    ends = []
    future = streamer.submit([1], timeout=LONG)
    future.add_done_callback(lambda future: ends.append(future.result()))
    eventually(lambda: len(queue) == 1)
    ((_, message),) = queue.entries()
    worker = workers(secret="right", _claim_after=SLOW)
    assert future.result(LONG) == [2]
    queue.redis.xadd(queue.keys.queue, {"m": message})
    eventually(lambda: worker.counts.answered == 2)
    # the deadline in it is signed: a message with another one has a wrong signature
    longer = message[:36] + b"\0" * 8 + message[44:]
    queue.redis.xadd(queue.keys.queue, {"m": longer})
    assert streamer.predict([3]) == [6]
    assert worker.counts.bad_signatures == 1
    eventually(lambda: ends)  # by another thread
    assert (ends, future.result(0)) == ([[2]], [2])
    assert streamer.stats().completed == 2


def test_a_signed_message_cannot_be_replayed_into_another_queue_or_later(workers, raw_clients):
    here, there = raw_clients(secret="right"), raw_clients(new_prefix(), secret="right")
    _, (chunk,) = here.chunks([1])
    old = 25 * 3600
    aged = here.message(chunk)[:44] + b"\0" * 8 + here.message(chunk)[52:]
    assert old
    there.redis.xadd(
        there.keys.queue, {"m": Signer("right").seal(here.keys.queue, here.message(chunk))}
    )
    there.post(aged)
    worker = workers(secret="right", prefix=there.keys.prefix, _claim_after=SLOW)
    assert there.ask([3]) == [6]
    assert (worker.counts.bad_signatures, worker.counts.expired) == (1, 1)


def test_a_reply_that_is_too_large_for_the_broker_is_an_error_that_says_so(
    prefix, workers, raw_clients, servers
):
    server = servers(proto_max_bulk_len="1mb")
    workers(lambda batch: [b"x" * n for n in batch], server=server)
    client = raw_clients(server=server)
    large, small = client.send([2_000_000], [5])
    with pytest.raises(WorkerLost, match=r"2,000,\d+ .*1,048,\d+"):
        client.result(large)
    assert client.result(small) == [b"xxxxx"]
    eventually(client.is_clean)


def test_a_reply_key_that_is_no_stream_affects_no_other_client(workers, raw_clients, caplog):
    odd, client = raw_clients(), raw_clients()
    odd.redis.set(odd.reply_key, "not a stream")
    workers()
    odd.send([1])
    assert client.ask([2]) == [4]
    eventually(client.is_clean)
    key = odd.reply_key.decode()  # logged a little later than the answers
    eventually(lambda: any(key in record.getMessage() for record in caplog.records))
