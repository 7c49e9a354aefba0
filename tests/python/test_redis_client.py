"""RedisStreamer: what is its own, and what it does when the broker fails."""

import logging
import os
import pickle
import threading
import time
from types import SimpleNamespace

import numpy
import pytest
from conftest import LONG, eventually
from process_models import double, echo

pytest.importorskip("redis")

from redis_server import RedisServer, find_server, free_port
from redis_tools import ThreadedWorker, new_prefix

from service_streamer import (
    BrokerError,
    QueueFull,
    RedisStreamer,
    RequestTimeout,
    StreamerClosed,
    WorkerLost,
)
from service_streamer._redis import protocol, reader, session
from service_streamer._redis.protocol import GROUP, Keys, Signer

pytestmark = [
    pytest.mark.over_redis,
    pytest.mark.skipif(find_server() is None, reason="no Redis server"),
]

SOON = 0.05  # s


@pytest.fixture
def server(shared_redis_server):
    return shared_redis_server


@pytest.fixture
def prefix():
    return new_prefix()


@pytest.fixture
def servers():
    """Makes servers of the test's own, which end after the clients and workers."""
    made = []

    def servers(**options):
        made.append(RedisServer(**options))
        return made[-1]

    yield servers
    for server in made:
        server.close()


@pytest.fixture
def make(server, servers, prefix):
    """Makes RedisStreamers."""
    made = []

    def make(server=server, prefix=prefix, **options):
        address = getattr(server, "url", server)
        made.append(RedisStreamer(address, prefix, **options))
        return made[-1]

    yield make
    for streamer in made:
        streamer.close(drain=False, timeout=LONG)


@pytest.fixture
def work(server, servers, prefix):
    """Makes workers."""
    made = []

    def work(model=double, server=server, prefix=prefix, **options):
        made.append(ThreadedWorker(model, server, prefix, **options))
        return made[-1]

    yield work
    for worker in made:
        worker.close(drain=False)


@pytest.fixture
def worker(work, server, prefix):
    """A worker that is ready: it forks no more, so that the test may start processes."""
    work()
    with RedisStreamer(server.address, prefix) as streamer:
        streamer.wait_ready(LONG)


@pytest.fixture
def quick_audits(monkeypatch):
    monkeypatch.setattr(reader, "AUDITS", (0.1, 0.2))


class Queue:
    """The queue of a prefix, by plain commands."""

    def __init__(self, server, prefix):
        self.redis = server.client()
        self.keys = Keys(prefix)

    def __len__(self):
        return self.redis.xlen(self.keys.queue)

    def entries(self):
        return [(entry, fields[b"m"]) for entry, fields in self.redis.xrange(self.keys.queue)]

    def requests(self):
        return [protocol.unpack_request(message) for _, message in self.entries()]

    def reply_streams(self):
        return self.redis.keys(self.keys.queue[:-1] + b"r:*")


@pytest.fixture
def queue(server, prefix):
    return Queue(server, prefix)


# ------------------------------------------------------------------ construction


def test_nothing_happens_before_the_first_request(queue, make):
    before = queue.redis.info("stats")["total_connections_received"]
    threads = threading.active_count()
    with make():
        pass
    assert threading.active_count() == threads
    assert queue.redis.info("stats")["total_connections_received"] == before


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"prefix": "{x}"}, "prefix"),
        ({"prefix": None}, "prefix"),
        ({"redis_broker": "http://localhost"}, "redis_broker"),
        ({"secret": ""}, "secret"),
        ({"batch_size": 0}, "batch_size"),
        ({"overflow": "drop"}, "overflow"),
        ({"max_queue": -1}, "max_queue"),
        ({"worker_timeout": -1}, "worker_timeout"),
    ],
)
def test_a_wrong_setting_is_named(options, name):
    with pytest.raises(ValueError, match=f"^{name} must be "):
        RedisStreamer(**options)


def test_without_redis_py_it_says_what_to_install(child):
    done = child(
        """
        import sys
        sys.modules["redis"] = None
        from service_streamer import *
        try:
            RedisStreamer()
        except ImportError as error:
            print(error)
        """
    )
    assert "pip install 'service-streamer[redis]'" in done.stdout


def test_it_is_a_client_only(make):
    streamer = make()
    with pytest.raises(NotImplementedError, match="does not own the workers"):
        streamer.destroy_workers()
    with pytest.raises(NotImplementedError, match="workers'"):
        streamer.configure(policy="greedy")
    assert repr(streamer).startswith("<RedisStreamer('")
    with pytest.raises(TypeError, match="make one in each process"):
        pickle.dumps(streamer)


# ---------------------------------------------------------------------- requests


def test_requests_are_answered_and_nothing_stays_at_the_broker(work, make, queue):
    work()
    streamer = make(batch_size=4)
    assert streamer.predict(list(range(100))) == list(range(0, 200, 2))
    futures = [streamer.submit([i]) for i in range(100)]
    assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(100)]
    eventually(lambda: len(queue) == 0)
    (replies,) = queue.reply_streams()
    streamer.predict([1])  # trims what was read before
    assert queue.redis.xlen(replies) <= 1
    assert 0 < queue.redis.pttl(replies) <= protocol.REPLY_EXPIRY_MS
    streamer.close()
    assert queue.reply_streams() == []


def test_requests_that_wait_are_in_the_queue_in_their_order(work, make, queue):
    streamer = make(batch_size=2)
    futures = [streamer.submit([i], priority=3) for i in range(5)]
    large = streamer.submit([5, 6, 7], timeout=LONG)
    eventually(lambda: len(queue) == 7)
    waiting = queue.requests()
    assert [(each.begin, each.items) for each in waiting] == [(0, 1)] * 5 + [(0, 2), (2, 1)]
    assert [each.priority for each in waiting] == [3, 3, 3, 3, 3, 0, 0]
    assert [each.deadline > each.sent for each in waiting] == [False] * 5 + [True] * 2
    work()
    assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(5)]
    assert large.result(LONG) == [10, 12, 14]


def test_large_payloads_travel(work, make):
    work(echo)
    array = numpy.arange(1_250_000, dtype=numpy.float64)
    (received,) = make().predict([array])
    assert numpy.array_equal(received, array)


def test_a_message_that_the_broker_does_not_take_is_refused_with_its_size(work, servers, make):
    redis_server = servers()
    redis_server.client().config_set("proto-max-bulk-len", "1mb")
    streamer = make(redis_server)
    with pytest.raises(BrokerError, match=r"1 item and 2,000,\d+ bytes .* takes: 1,048,576"):
        streamer.predict([bytes(2_000_000)])
    work(server=redis_server)
    assert streamer.predict([1]) == [2]


def test_an_exception_of_the_model_arrives_as_itself(work, make):
    def model(batch):
        raise LookupError("no such word")

    work(model)
    with pytest.raises(LookupError, match="no such word"):
        make().predict([1])


def test_prefixes_do_not_meet(work, make):
    prefixes = [new_prefix() for _ in range(5)]
    for number, prefix in enumerate(prefixes):
        work(lambda batch, number=number: [(number, item) for item in batch], prefix=prefix)
    streamers = [make(prefix=prefix) for prefix in prefixes]
    futures = [(number, streamers[number].submit([number])) for number in range(5)]
    assert [future.result(LONG) for _, future in futures] == [[(n, n)] for n in range(5)]


def test_a_thousand_prefixes(make, server):
    prefixes = [f"{new_prefix()}-{i}" for i in range(1000)]
    for i, prefix in enumerate(prefixes):
        streamer = RedisStreamer(server.address, prefix, worker_timeout=LONG)
        future = streamer.submit([i])
        queue = Queue(server, prefix) if i % 100 == 0 else None
        if queue is not None:
            eventually(lambda queue=queue: len(queue) == 1)
        streamer.close(drain=False)
        assert isinstance(future.exception(LONG), StreamerClosed)
        if queue is not None:
            assert len(queue) == 0


# ------------------------------------------------------- ends of requests, residue


def test_a_cancelled_request_leaves_the_queue(make, queue):
    streamer = make()
    future = streamer.submit([1])
    eventually(lambda: len(queue) == 1)
    assert future.cancel()
    eventually(lambda: len(queue) == 0)


def test_an_expired_request_leaves_the_queue(make, queue):
    streamer = make()
    with pytest.raises(RequestTimeout):
        streamer.predict([1], timeout=SOON)
    eventually(lambda: len(queue) == 0)
    assert streamer.stats().expired == 1


def test_close_answers_what_is_under_way(work, make, threads):
    streamer = make()
    futures = [streamer.submit([i]) for i in range(10)]
    threads.run(streamer.close)
    work()
    assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(10)]
    threads.join()


def test_close_without_drain_takes_back_what_is_under_way(make, queue):
    streamer = make()
    futures = [streamer.submit([i]) for i in range(10)]
    eventually(lambda: len(queue) == 10)
    streamer.close(drain=False)
    for future in futures:
        assert isinstance(future.exception(LONG), StreamerClosed)
    assert len(queue) == 0
    assert queue.reply_streams() == []
    with pytest.raises(StreamerClosed):
        streamer.predict([1])


def test_close_does_not_wait_for_a_read_that_blocks(work, make, queue):
    work()
    streamer = make()
    streamer.predict([1])
    begin = time.monotonic()
    streamer.close()
    assert time.monotonic() - begin < 4  # reads block for 5 s


def test_an_idle_client_asks_nothing(work, make, servers, monkeypatch):
    redis_server = servers()
    monkeypatch.setattr(reader, "BLOCK_MS", 50)
    monkeypatch.setattr(reader, "AUDITS", (0.05, 0.05))
    worker = work(server=redis_server)
    make(redis_server).predict([1])
    worker.close()
    client = redis_server.client()
    eventually(lambda: client.info("clients")["blocked_clients"] == 0)
    first = client.info("stats")["total_commands_processed"]
    threading.Event().wait(0.3)  # six reads, if there were any
    assert client.info("stats")["total_commands_processed"] == first + 1


def test_a_forgotten_client_answers_and_goes(work, server, prefix):
    before = threading.active_count()
    streamer = RedisStreamer(server.address, prefix)
    future = streamer.submit([1])
    del streamer
    worker = work()
    assert future.result(LONG) == [2]
    worker.close()
    eventually(lambda: threading.active_count() <= before + 1)  # that of callbacks may be new


# ----------------------------------------------------------------- back-pressure


def test_a_full_queue_rejects(make, queue, work):
    streamer = make(max_queue=3, overflow="reject")
    futures = []
    with pytest.raises(QueueFull) as caught:
        futures.extend(streamer.submit([1]) for _ in range(100))
    assert 3 <= len(futures) <= 6  # three there, three here
    assert caught.value.retry_after >= 0
    eventually(lambda: len(queue) == 3)
    work()
    assert [future.result(LONG) for future in futures] == [[2]] * len(futures)


def test_a_full_queue_blocks_until_there_is_room(make, queue, work, threads):
    streamer = make(max_queue=2)
    for i in range(8):
        threads.run(streamer.predict, [i])
    eventually(lambda: streamer.stats().waiting_requests == 4 and len(queue) == 2)
    work()
    assert threads.join() == [[2 * i] for i in range(8)]


def test_the_requests_of_other_clients_count(make, queue, work):
    other = make()
    futures = [other.submit([i]) for i in range(5)]
    eventually(lambda: len(queue) == 5)
    streamer = make(max_queue=5)
    first = streamer.submit([5])  # not known to be full before
    eventually(lambda: len(queue) == 6)
    second = streamer.submit([6])
    eventually(lambda: streamer.stats().queued_requests == 1)
    assert len(queue) == 6
    work()
    assert [future.result(LONG) for future in (*futures, first, second)] == [
        [2 * i] for i in range(7)
    ]


# ------------------------------------------------------------------- no broker


def test_without_a_broker_the_first_request_says_so_soon(make, threads):
    port = free_port()
    streamer = make(f"127.0.0.1:{port}")
    with pytest.raises(BrokerError, match=rf"the Redis broker 127.0.0.1:{port} is unreachable"):
        streamer.predict([1], timeout=LONG)
    future = streamer.submit([1])
    assert isinstance(future.exception(LONG), BrokerError)
    assert streamer.stats().stream is None
    assert "cannot be asked" in streamer.explain()


def test_a_broker_that_comes_later_is_found(make, work, prefix, servers):
    server = servers()
    streamer = make(server)
    server.stop()
    with pytest.raises(BrokerError):
        streamer.predict([1])
    server.start()
    work(server=server)
    assert streamer.predict([1]) == [2]


def test_a_broker_that_refuses_says_why(make, servers):
    server = servers(requirepass="right")
    for address, words in [
        (server.address, "asks for a password"),
        (f"redis://:wrong@{server.address}", "refuses the user or the password"),
    ]:
        streamer = make(address)
        with pytest.raises(BrokerError, match=words):
            streamer.predict([1])
        with pytest.raises(BrokerError, match=words):
            streamer.wait_ready(LONG)


def test_a_replica_says_that_it_is_one(make, servers):
    redis_server = servers()
    replica = servers()
    replica.client().execute_command("REPLICAOF", "127.0.0.1", redis_server.port)
    eventually(lambda: replica.client().info("replication")["master_link_status"] == "up")
    with pytest.raises(BrokerError, match="is a replica that is only to be read"):
        make(replica).predict([1])


def test_a_broker_without_memory_says_so_and_takes_more_later(make, work, servers):
    server = servers(maxmemory="4mb")
    streamer = make(server)
    futures = [streamer.submit([bytes(1_000_000)]) for _ in range(8)]
    eventually(lambda: futures[-1].done())
    for future in futures[-1:]:
        assert isinstance(future.exception(0), BrokerError)
        assert "is out of memory" in str(future.exception(0))
    for future in futures:
        future.cancel()
    work(server=server)
    eventually(lambda: server.client().info("memory")["used_memory"] < 3_000_000)
    assert streamer.predict([1]) == [2]


def test_an_outage_ends_requests_without_a_deadline_and_service_resumes(
    make, work, monkeypatch, servers
):
    monkeypatch.setattr(session, "PATIENCE", 0.3)
    server = servers()
    work(server=server)
    streamer = make(server)
    assert streamer.predict([1]) == [2]
    server.stop()
    futures = [streamer.submit([i]) for i in range(5)]
    for future in futures:
        assert isinstance(future.exception(LONG), BrokerError)
    server.start()
    eventually(lambda: answers(streamer))


def answers(streamer):
    try:
        return streamer.predict([1], timeout=LONG) == [2]
    except BrokerError:
        return False


def test_what_was_sent_ends_too_when_the_broker_stays_away(make, monkeypatch, servers):
    monkeypatch.setattr(session, "PATIENCE", 0.3)
    server = servers()
    streamer = make(server)
    future = streamer.submit([1])
    eventually(lambda: streamer.stats().stream.length == 1)
    server.stop()
    assert isinstance(future.exception(LONG), BrokerError)


def test_deadlines_are_kept_while_the_broker_is_away(make, work, servers):
    server = servers()
    work(server=server)
    streamer = make(server)
    assert streamer.predict([1]) == [2]
    server.freeze()
    begin = time.monotonic()
    for call in (streamer.predict, lambda *a, **k: streamer.submit(*a, **k).result()):
        with pytest.raises(RequestTimeout):
            call([1], timeout=SOON)
    assert time.monotonic() - begin < 5
    server.thaw()
    assert streamer.predict([1]) == [2]


# ------------------------------------------------------------------ lost entries


def test_a_restart_with_persistence_loses_nothing(make, work, servers):
    server = servers(appendonly="yes")
    streamer = make(server)
    futures = [streamer.submit([i]) for i in range(50)]
    eventually(lambda: streamer.stats().stream.length == 50)
    server.kill()
    futures += [streamer.submit([i]) for i in range(50, 100)]
    server.start()
    work(server=server)
    assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(100)]


def test_a_restart_without_persistence_costs_only_time(make, work, servers):
    server = servers()
    streamer = make(server, batch_size=64)
    futures = [streamer.submit([i]) for i in range(50)]
    large = streamer.submit(list(range(200)))
    eventually(lambda: streamer.stats().stream.length == 54)
    server.kill()
    server.start()
    work(server=server)
    assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(50)]
    assert large.result(LONG) == list(range(0, 400, 2))


@pytest.mark.usefixtures("quick_audits")
def test_flushall_costs_only_time(make, work, servers, threads):
    redis_server = servers()
    work(server=redis_server, batch_size=4)
    streamer = make(redis_server)
    over = threading.Event()

    def ask(i):
        count = 0
        while not over.is_set():
            assert streamer.predict([i], timeout=LONG) == [2 * i]
            count += 1
        return count

    for i in range(16):
        threads.run(ask, i)
    client = redis_server.client()
    for _ in range(5):
        before = streamer.stats().completed
        eventually(lambda before=before: streamer.stats().completed > before + 100)
        client.flushall()
    over.set()
    assert all(isinstance(count, int) for count in threads.join())


@pytest.mark.usefixtures("quick_audits")
def test_what_a_worker_took_and_lost_is_sent_again(make, work, queue):
    streamer = make()
    futures = [streamer.submit([i]) for i in range(3)]
    eventually(lambda: len(queue) == 3)
    queue.redis.xgroup_create(queue.keys.queue, GROUP, id="0")
    queue.redis.xreadgroup(GROUP, "thief", {queue.keys.queue: ">"}, count=2)
    for entry, _ in queue.entries()[:2]:
        queue.redis.xack(queue.keys.queue, GROUP, entry)
        queue.redis.xdel(queue.keys.queue, entry)
    eventually(lambda: len(queue) == 3)
    assert sorted(each.request for each in queue.requests()) == [1, 2, 3]
    work()
    assert [future.result(LONG) for future in futures] == [[0], [2], [4]]


@pytest.mark.usefixtures("quick_audits")
def test_what_waits_or_is_with_a_worker_is_not_sent_again(make, work, queue):
    streamer = make()
    futures = [streamer.submit([i]) for i in range(3)]
    eventually(lambda: len(queue) == 3)
    queue.redis.xgroup_create(queue.keys.queue, GROUP, id="0")
    queue.redis.xreadgroup(GROUP, "slow", {queue.keys.queue: ">"}, count=2)
    client = queue.redis
    asked = client.info("commandstats")["cmdstat_xpending"]["calls"]
    eventually(lambda: client.info("commandstats")["cmdstat_xpending"]["calls"] > asked + 6)
    assert len(queue) == 3
    work()
    assert [future.result(LONG) for future in futures] == [[0], [2], [4]]


@pytest.mark.usefixtures("quick_audits")
def test_a_request_that_vanishes_each_time_is_given_up(make, queue):
    streamer = make()
    future = streamer.submit([1])
    deadline = time.monotonic() + LONG
    while not future.done() and time.monotonic() < deadline:
        queue.redis.delete(queue.keys.queue)
    with pytest.raises(WorkerLost, match=r"4 times and not answered.*another secret"):
        future.result(0)


def test_killed_connections_cost_only_time(make, work, servers, threads):
    redis_server = servers()
    work(server=redis_server)
    streamer = make(redis_server)

    def ask(i):
        return [streamer.predict([i, n], timeout=LONG) for n in range(200)]

    for i in range(8):
        threads.run(ask, i)
    client = redis_server.client()
    for _ in range(30):
        before = streamer.stats().completed
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        eventually(lambda before=before: streamer.stats().completed > before)
    assert threads.join() == [[[2 * i, 2 * n] for n in range(200)] for i in range(8)]


def test_one_thread_finds_the_broker_while_another_says_it_is_lost(monkeypatch):
    place = session.Session(None, "a broker", Keys(""), Signer(None), bytes(16))

    def monotonic():
        place.found()
        return time.monotonic()

    monkeypatch.setattr(session, "time", SimpleNamespace(monotonic=monotonic))
    assert not place.lost(BrokerError("it is away", transient=True))


def test_entries_that_are_there_twice_are_answered_once(make, work, queue):
    streamer = make()
    done = []
    futures = [streamer.submit([i]) for i in range(5)]
    for future in futures:
        future.add_done_callback(lambda future: done.append(future.result()))
    eventually(lambda: len(queue) == 5)
    for _, message in queue.entries():
        queue.redis.xadd(queue.keys.queue, {"m": message})
    work()
    assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(5)]
    eventually(lambda: len(queue) == 0)
    assert streamer.predict([5]) == [10]
    eventually(lambda: sorted(done) == [[2 * i] for i in range(5)])
    assert streamer.stats().completed == 6


# ------------------------------------------------------------- secrets, strangers


def test_messages_are_signed_and_opened_with_the_same_secret(make, work, queue):
    streamer = make(secret="secret")
    future = streamer.submit([1])
    eventually(lambda: len(queue) == 1)
    ((_, message),) = queue.entries()
    assert Signer("secret").open(queue.keys.queue, message)
    work(secret=b"secret")
    assert future.result(LONG) == [2]


@pytest.mark.usefixtures("quick_audits")
@pytest.mark.parametrize(("ours", "theirs"), [("one", "other"), (None, "one"), ("one", None)])
def test_another_secret_answers_nobody_and_hangs_nobody(make, work, ours, theirs):
    work(secret=theirs)
    streamer = make(secret=ours)
    future = streamer.submit([1])
    with pytest.raises(WorkerLost, match="another secret"):
        future.result(LONG)


def test_strange_replies_are_ignored_counted_and_logged_once(make, work, queue, caplog):
    streamer = make(secret="secret")
    future = streamer.submit([1])
    eventually(lambda: len(queue) == 1)
    (waiting,) = [
        protocol.unpack_request(Signer("secret").open(queue.keys.queue, message))
        for _, message in queue.entries()
    ]
    replies = queue.keys.replies(waiting.client)
    forged = protocol.pack_replies([(waiting.request, 0, 1, b"\0" * 100)])
    with caplog.at_level(logging.ERROR, "service_streamer"):
        for fields in [
            {"m": forged},
            {"m": Signer("other").seal(replies, forged)},
            {"m": Signer("secret").seal(queue.keys.queue, forged)},
            {"m": Signer("secret").seal(replies, b"not one of ours")},
            {"m": b""},
            {"x": Signer("secret").seal(replies, forged)},
        ]:
            queue.redis.xadd(replies, fields)
        eventually(lambda: streamer.stats().stream.refused == 6)
    assert len([r for r in caplog.records if "is ignored" in r.getMessage()]) == 1
    assert not future.done()
    work(secret="secret")
    assert future.result(LONG) == [2]


def test_a_refusal_ends_its_request_with_its_words(make, queue):
    streamer = make()
    first, second = streamer.submit([1]), streamer.submit([2])
    eventually(lambda: len(queue) == 2)
    waiting = queue.requests()
    note = "this worker speaks version 2 of the protocol, the client version 1"
    refusal = protocol.pack_refusal(waiting[0].request, 0, 1, note)
    queue.redis.xadd(queue.keys.replies(waiting[0].client), {"m": refusal})
    with pytest.raises(WorkerLost, match=note):
        first.result(LONG)
    assert not second.done()


def test_an_answer_that_is_corrupt_ends_its_request(make, queue):
    streamer = make()
    future = streamer.submit([1])
    eventually(lambda: len(queue) == 1)
    (waiting,) = queue.requests()
    corrupt = protocol.pack_replies([(waiting.request, 0, 1, b"\xff" * 50)])
    queue.redis.xadd(queue.keys.replies(waiting.client), {"m": corrupt})
    with pytest.raises(WorkerLost):
        future.result(LONG)


def test_what_is_left_of_a_refused_request_is_taken_back(make, queue):
    streamer = make(batch_size=2)
    large = streamer.submit(list(range(6)))
    eventually(lambda: len(queue) == 3)
    waiting = queue.requests()
    refusal = protocol.pack_refusal(waiting[0].request, 0, 2, "poison")
    queue.redis.xadd(queue.keys.replies(waiting[0].client), {"m": refusal})
    with pytest.raises(WorkerLost, match="poison"):
        large.result(LONG)
    streamer.submit([7])
    eventually(lambda: len(queue) == 1)


# -------------------------------------------------------------------- statistics


def test_stats_tell_the_queue_at_the_broker(make, work, queue, process_gate):
    streamer = make()
    stats = streamer.stats().stream
    assert (stats.length, stats.pending, stats.consumers) == (0, 0, ())
    assert stats.oldest_waiting is None
    assert "No worker has joined" in streamer.explain()

    futures = [streamer.submit([i]) for i in range(3)]
    eventually(lambda: streamer.stats().stream.length == 3)
    stats = streamer.stats().stream
    assert stats.pending == 0
    assert 0 <= stats.oldest_waiting < LONG

    work(process_gate)
    process_gate.wait_entered()
    eventually(lambda: streamer.stats().stream.pending == 3)
    (consumer,) = streamer.stats().stream.consumers
    assert consumer.pending == 3
    assert consumer.idle < LONG
    text = streamer.explain()
    assert "queue at the broker: 3 requests, 3 with workers; the oldest came" in text
    assert consumer.name[:40] in text
    process_gate.open()
    for future in futures:
        future.result(LONG)


def test_wait_ready_waits_for_a_worker(make, work, threads):
    streamer = make()
    with pytest.raises(RequestTimeout):
        streamer.wait_ready(SOON)
    threads.run(streamer.wait_ready, LONG)
    work()
    assert threads.join() == [None]
    assert streamer.predict([1]) == [2]


# ------------------------------------------------------------- processes and loops


@pytest.mark.usefixtures("worker")
def test_a_streamer_made_before_a_fork_works_in_every_child(make):
    streamer = make()
    assert streamer.predict([1]) == [2]
    pids = []
    for i in range(3):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = 0 if streamer.predict([i, i]) == [2 * i, 2 * i] else 2
                streamer.close()
            finally:
                os._exit(code)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0, 0]
    assert streamer.predict([2]) == [4]


EXIT = """
import sys, threading
from service_streamer import RedisStreamer
streamer = RedisStreamer(sys.argv[1], sys.argv[2])
{what}
"""


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    "what",
    [
        "",
        "streamer.predict([1])",
        "streamer.predict([1]); streamer.close()",
        "with streamer: streamer.predict([1])",
        "futures = [streamer.submit([i]) for i in range(1000)]",
        "streamer.predict([1]); del streamer",
        "threading.Thread(target=lambda: [streamer.predict([1]) for _ in iter(int, 1)], "
        "daemon=True).start(); streamer.predict([1])",
        "broken = RedisStreamer('127.0.0.1:1'); broken.submit([1])",
        "lost = RedisStreamer(sys.argv[1], 'nobody'); lost.submit([1]); streamer.predict([1])",
    ],
)
def test_the_interpreter_ends(what, server, prefix, child):
    done = child(EXIT.format(what=what), server.address, prefix)
    assert done.timing < LONG


GEVENT = """
from gevent import monkey; monkey.patch_all()
import gevent, sys, time
from service_streamer import RedisStreamer
streamer = RedisStreamer(sys.argv[1], sys.argv[2])
ticks = []

def tick():
    while True:
        ticks.append(time.monotonic())
        gevent.sleep(0.005)

ticker = gevent.spawn(tick)
streamer.wait_ready(30)
jobs = [gevent.spawn(lambda i=i: [streamer.predict([i, n]) for n in range(20)]) for i in range(50)]
gevent.joinall(jobs, raise_error=True)
for i, job in enumerate(jobs):
    assert job.value == [[2 * i, 2 * n] for n in range(20)], job.value
print(streamer.stats().completed)
streamer.close()
ticker.kill()
"""


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("kind", ["address", "unix"])
def test_greenlets_of_a_patched_process(kind, server, prefix, child):
    pytest.importorskip("gevent")
    address = server.address if kind == "address" else f"unix://{server.unix_socket}"
    done = child(GEVENT, address, prefix)
    assert done.stdout == "1000\n"


@pytest.mark.usefixtures("worker")
def test_a_fork_of_a_patched_process(server, prefix, child):
    pytest.importorskip("gevent")
    done = child(
        """
        from gevent import monkey; monkey.patch_all()
        import os, sys
        from service_streamer import RedisStreamer
        streamer = RedisStreamer(sys.argv[1], sys.argv[2])
        assert streamer.predict([1]) == [2]
        pid = os.fork()
        if pid == 0:
            assert streamer.predict([2]) == [4]
            streamer.close()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert streamer.predict([3]) == [6]
        print("done")
        """,
        server.address,
        prefix,
    )
    assert done.stdout == "done\n"
