"""A queue of several shards: on one server, and on a cluster of three nodes."""

import contextlib
from collections import Counter

import pytest
from asking import Asking, kill_under_load
from process_models import ProcessGate
from redis_models import count_to
from waits import LONG, eventually

pytest.importorskip("redis")

from redis.crc import key_slot
from redis_server import NEEDS_SERVER
from redis_tools import MORTAL, SLOW, ProcessWorker

from service_streamer import RedisStreamer, RedisWorker, RequestTimeout
from service_streamer._redis.gateway.commands import Queue
from service_streamer._redis.gateway.room import Room
from service_streamer._redis.keys import RequestStream
from service_streamer._redis.protocol import GROUP, Keys
from service_streamer._redis.shards import shard_number
from service_streamer._waiting.threads import NativeThread

pytest_plugins = ["redis_fixtures", "redis_places"]
pytestmark = NEEDS_SERVER

SHARDS = 4
BATCH = 4


@pytest.fixture
def clients(make):
    """Makes a client of each shard. They draw one at random, so some are not needed."""

    def clients(shards=SHARDS, **options):
        found = {}
        while len(found) < shards:
            client = make(shards=shards, **options)
            found[shard_number(client._backend.client_id, shards)] = client
        return [found[shard] for shard in range(shards)]

    return clients


@pytest.fixture
def lengths(server, prefix):
    """The entries of each shard."""
    redis = server.client()
    return lambda shards=SHARDS: [redis.xlen(Keys(prefix, each).queue) for each in range(shards)]


def unanswered(worker):
    """The items that a worker has from each shard."""
    links = worker.worker._gateway.links
    return [link.consumer.leases.unanswered_items(b"") for link in links]


def test_a_cluster_spreads_the_shards_and_a_worker_answers_all(places, workers, clients):
    place, prefix, shards = places("cluster", nodes=3), "spread", 8
    keys = [Keys(prefix, shard) for shard in range(shards)]
    workers(server=place, prefix=prefix, shards=shards)
    of_all = clients(shards, server=place, prefix=prefix)
    for client in of_all:
        client.wait_ready(LONG)
    futures = [client.submit(list(range(20))) for client in of_all]
    assert [future.result(LONG) for future in futures] == [list(range(0, 40, 2))] * shards
    at = [place.client(each).get_connection_kwargs()["port"] for each in keys]
    assert len(set(at)) == 3
    for each in keys:
        assert place.client(each).xinfo_groups(each.queue)[0]["name"] == GROUP
    eventually(lambda: of_all[0].stats().stream.length == 0)


@pytest.mark.timeout(300)
def test_kills_under_load_lose_nothing_and_double_nothing(places, clients, leftovers):
    place, prefix = places("cluster", nodes=3), "kills"

    def start():
        worker = ProcessWorker("redis_models:steps", place, prefix, shards=SHARDS, **MORTAL)
        leftovers.append(worker.close)
        return worker

    callers = [Asking(client, 2) for client in clients(server=place, prefix=prefix)]
    kill_under_load(start, callers, kills=15)  # fifty at one shard: test_redis_faults

    def is_clean(keys):
        redis = place.client(keys)
        return not redis.xlen(keys.queue) and not redis.xpending(keys.queue, GROUP)["pending"]

    eventually(lambda: all(is_clean(Keys(prefix, shard)) for shard in range(SHARDS)))


def test_requests_of_a_killed_worker_are_answered_in_each_shard(
    processes, clients, lengths, tmp_path
):
    gate = ProcessGate(tmp_path)
    options = {"model_init_args": [str(tmp_path)], "batch_size": 1, "shards": SHARDS}
    doomed = processes("redis_models:Gated", **options)
    futures = [client.submit([number]) for number, client in enumerate(clients())]
    gate.wait_entered()
    doomed.kill()
    gate.open()
    survivor = processes("redis_models:Gated", **options)
    answers = [future.result(LONG) for future in futures]
    assert answers == [[(number, survivor.pid)] for number in range(SHARDS)]
    eventually(lambda: lengths() == [0] * SHARDS)
    gate.close()


@pytest.mark.parametrize(("batch_size", "shards"), [(BATCH, SHARDS), (1, 8)])
def test_a_worker_holds_at_most_twice_its_room_over_all_shards(
    workers, clients, lengths, process_gate, batch_size, shards
):
    futures = [client.submit([i]) for client in clients(shards) for i in range(10 * BATCH)]
    eventually(lambda: lengths(shards) == [10 * BATCH] * shards)
    options = {"batch_size": batch_size, "shards": shards, "_claim_after": SLOW}
    full = workers(process_gate, **options)
    process_gate.wait_entered()
    eventually(lambda: sum(unanswered(full)) >= 2 * batch_size)
    other = workers(**options)
    # the other one answers all that are left
    eventually(lambda: sum(lengths(shards)) == sum(unanswered(full)))
    assert sum(unanswered(full)) <= 2 * batch_size + max(2 * batch_size, shards)
    assert other.counts.answered > 0
    process_gate.open()
    for future in futures:
        future.result(LONG)


class Asker:
    """What a room sees of the fetcher of a shard that has many requests."""

    stream, workers = RequestStream(b"q", b""), 1

    def __init__(self, room):
        self.here, self.asked, self.has_more = 0, 0.0, False
        room.add(self)

    def unanswered_items(self):
        return self.here


def test_reads_that_end_one_after_the_other_bring_no_more_than_twice_the_room():
    room = Room(64, reserve=0)
    askers = [Asker(room) for _ in range(8)]
    parts = [room.items_for(each) for each in askers]  # of reads that wait
    for each, part in zip(askers, parts, strict=True):  # the next one begins before others end
        each.here, each.has_more = part, True
        each.asked, each.has_more = room.items_for(each), False
    assert sum(each.here + max(each.asked, 0) for each in askers) <= 2 * 128


def test_no_shard_gets_more_than_its_part_and_none_is_kept_out():
    room = Room(4, reserve=0)
    first, second, third, idle = (Asker(room) for _ in range(4))
    first.here, first.has_more = 8, True  # it was alone
    assert room.items_for(idle) > 0
    second.asked, third.has_more = 1.0, True  # the read of the second is under way
    first.here = 8 / 3
    assert room.items_for(first) == 0
    assert room.items_for(third) == pytest.approx(8 / 3)


def test_a_read_that_waits_asks_for_no_more_than_the_part_of_its_shard(
    workers, clients, monkeypatch
):
    fetch, waiting, others = Queue.fetch, [], []

    def noting(queue, connection, stream, most, block_ms):
        (others if block_ms is None else waiting).append(most)
        return fetch(queue, connection, stream, most, block_ms)

    monkeypatch.setattr(Queue, "fetch", noting)
    workers(batch_size=BATCH, shards=SHARDS)
    futures = [client.submit([i]) for client in clients() for i in range(10 * BATCH)]
    for future in futures:
        future.result(LONG)
    assert max(waiting) <= 2 * BATCH // SHARDS
    assert others


def test_a_worker_that_can_start_no_thread_leaves_all_shards_and_what_it_has(
    workers, clients, process_gate, monkeypatch
):
    """None can be started at the exit of the interpreter, from Python 3.12 on."""
    worker = workers(process_gate, batch_size=BATCH, shards=SHARDS, _claim_after=SLOW)
    futures = [client.submit([1]) for client in clients()]
    process_gate.wait_entered()
    links = worker.worker._gateway.links
    eventually(lambda: [len(link.consumer.leases) for link in links] == [1] * SHARDS)

    def refuse(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(NativeThread, "start", refuse)
    worker.close(drain=False)
    monkeypatch.undo()
    assert worker.error is None
    workers(batch_size=BATCH, shards=SHARDS, _claim_after=5.0)  # all are as idle as that already
    for future in futures:
        assert future.result(LONG) == [2]


def test_shards_with_backlogs_share_a_worker_and_each_keeps_its_order(
    workers, clients, lengths, process_gate
):
    futures = [
        client.submit([(shard, i)])
        for shard, client in enumerate(clients())
        for i in range(10 * BATCH)
    ]
    eventually(lambda: lengths() == [10 * BATCH] * SHARDS)
    worker = workers(process_gate, batch_size=BATCH, shards=SHARDS, _claim_after=SLOW)
    process_gate.wait_entered()
    eventually(lambda: all(unanswered(worker)))  # the first one may have filled the room
    process_gate.open()
    for future in futures:
        future.result(LONG)
    ran = [item for batch in process_gate.batches for item in batch]
    for shard in range(SHARDS):
        assert [i for of, i in ran if of == shard] == list(range(10 * BATCH))


def test_the_outputs_of_each_shard_are_streamed_to_its_clients(workers, clients):
    workers(count_to, shards=SHARDS)
    for client in clients():
        assert list(client.stream(5)) == list(range(5))


@pytest.mark.parametrize("shards", [1, 2])
def test_outputs_are_streamed_to_a_client_that_has_fewer_shards(workers, make, shards):
    workers(count_to, shards=SHARDS)
    client = make(shards=shards)
    while shard_number(client._backend.client_id, SHARDS) < shards:  # not its own among more
        client = make(shards=shards)
    assert list(client.stream(5)) == list(range(5))


def test_the_statistics_of_all_shards_are_added(workers, clients, process_gate):
    worker = workers(process_gate, batch_size=SHARDS, shards=SHARDS)
    of_all = clients()
    futures = [client.submit([1]) for client in of_all]
    process_gate.wait_entered()
    eventually(lambda: of_all[0].stats().stream.pending == SHARDS)
    stream = of_all[-1].stats().stream
    assert (stream.length, stream.oldest_waiting > 0) == (SHARDS, True)
    assert [(each.name, each.pending) for each in stream.consumers] == [
        (worker.name.decode(), SHARDS)
    ]
    process_gate.open()
    for future in futures:
        future.result(LONG)


def test_while_the_node_of_one_shard_is_down_the_others_go_on(places, workers, clients):
    place, prefix = places("cluster", nodes=3), "down"
    all_keys = [Keys(prefix, shard) for shard in range(SHARDS)]
    workers(server=place, prefix=prefix, shards=SHARDS)
    of_all = clients(server=place, prefix=prefix)
    futures = [client.submit([1]) for client in of_all]
    assert [future.result(LONG) for future in futures] == [[2]] * SHARDS
    down = place.nodes[-1]
    down.kill()
    at = [place.node_of(each) for each in all_keys]
    others = [client for client, node in zip(of_all, at, strict=True) if node is not down]
    assert len(others) < SHARDS
    for number, client in enumerate(others):
        assert client.submit([number]).result(LONG) == [2 * number]
    stream = others[0].stats().stream
    assert (stream.unreachable, len(stream.consumers)) == (SHARDS - len(others), 1)
    assert "unreachable shard" in others[0].explain()
    down.start()
    futures = [client.submit([3]) for client in of_all]
    assert [future.result(LONG) for future in futures] == [[6]] * SHARDS


def test_a_client_with_more_shards_than_the_workers_says_that_none_has_joined(workers, make):
    workers(shards=2)
    make(shards=1).wait_ready(LONG)
    streamer = make(shards=16)  # its own may be one of the two
    with contextlib.suppress(RequestTimeout):
        streamer.predict([1], timeout=0.2)
    assert streamer.stats().stream.consumers == ()
    assert "as many shards" in streamer.explain()


@pytest.mark.parametrize("shards", [0, -1, 1.5, "8", True, 17, None])
def test_a_number_of_shards_that_is_none_is_named(shards):
    with pytest.raises(ValueError, match=f"shards must be .* not {shards!r}"):
        RedisStreamer(shards=shards)
    with pytest.raises(ValueError, match=f"shards must be .* not {shards!r}"):
        RedisWorker(str, 8, shards=shards)


@pytest.mark.parametrize("prefix", ["", "sentiment", "a much longer name of a queue"])
def test_any_number_of_shards_is_spread_evenly_over_the_hash_slots(prefix):
    slots = [key_slot(Keys(prefix, shard).queue) for shard in range(16)]
    for shards, nodes in [(2, 2), (4, 3), (8, 3), (8, 8), (12, 3), (16, 3), (16, 8)]:
        counts = Counter(slot * nodes // 16384 for slot in slots[:shards])
        assert len(counts) == nodes
        assert max(counts.values()) - min(counts.values()) <= 2
