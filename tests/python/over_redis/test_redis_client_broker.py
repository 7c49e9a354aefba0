"""RedisStreamer: what it does when the broker is away, refuses, or loses what it had."""

import time

import pytest
from asking import Asking
from waits import LONG, eventually

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER

from service_streamer import (
    BrokerError,
    RequestTimeout,
    WorkerLost,
)
from service_streamer._redis.client import session
from service_streamer._redis.protocol import GROUP

pytest_plugins = ["redis_fixtures"]
pytestmark = NEEDS_SERVER

SOON = 0.05  # s


# ------------------------------------------------------------------- no broker


def test_without_a_broker_the_first_request_says_so_soon(make, port):
    streamer = make(f"127.0.0.1:{port}")
    with pytest.raises(BrokerError, match=rf"127\.0\.0\.1:{port}"):
        streamer.predict([1], timeout=LONG)
    future = streamer.submit([1])
    assert isinstance(future.exception(LONG), BrokerError)
    assert streamer.stats().stream is None
    eventually(lambda: streamer.stats().broker_errors == 2)
    assert streamer.stats().failed == 0  # no model has run
    text = streamer.explain()
    assert "BrokerError" in text
    assert f"127.0.0.1:{port}" in text
    assert "exception of the model" not in text


def test_a_broker_that_comes_later_is_found(make, workers, prefix, servers):
    server = servers()
    streamer = make(server)
    server.stop()
    with pytest.raises(BrokerError):
        streamer.predict([1])
    server.start()
    workers(server=server)
    assert streamer.predict([1]) == [2]


def test_a_broker_that_refuses_says_why(make, servers):
    server = servers(requirepass="right")
    for address, words in [
        (server.address, "password"),
        (f"redis://:wrong@{server.address}", "user or the password"),
    ]:
        streamer = make(address)
        with pytest.raises(BrokerError, match=words):
            streamer.predict([1])
        with pytest.raises(BrokerError, match=words):
            streamer.wait_ready(LONG)


def test_a_broker_without_memory_says_so_and_takes_more_later(make, workers, servers):
    server = servers(maxmemory="4mb")
    streamer = make(server)
    futures = [streamer.submit([bytes(1_000_000)]) for _ in range(8)]
    eventually(lambda: futures[-1].done())
    for future in futures[-1:]:
        assert isinstance(future.exception(0), BrokerError)
        assert "is out of memory" in str(future.exception(0))
    for future in futures:
        future.cancel()
    eventually(lambda: streamer.stats().stream.length == 0)  # a worker may answer what is there
    workers(server=server)
    eventually(lambda: server.client().info("memory")["used_memory"] < 3_000_000)
    assert streamer.predict([1]) == [2]


def test_an_outage_ends_requests_without_a_deadline_and_service_resumes(
    make, workers, monkeypatch, servers
):
    monkeypatch.setattr(session, "PATIENCE", 0.3)
    server = servers()
    workers(server=server)
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


def test_deadlines_are_kept_while_the_broker_is_away(make, workers, servers):
    server = servers()
    workers(server=server)
    # however long the broker is silent here, that is no outage, by which requests would end, too
    streamer = make(f"{server.url}?socket_timeout={10 * LONG}")
    assert streamer.predict([1]) == [2]
    server.freeze()
    begin = time.monotonic()
    for call in (streamer.predict, lambda *a, **k: streamer.submit(*a, **k).result()):
        with pytest.raises(RequestTimeout):
            call([1], timeout=SOON)
    assert time.monotonic() - begin < LONG
    server.thaw()
    assert streamer.predict([1]) == [2]


# ------------------------------------------------------------------ lost entries


def test_a_restart_with_persistence_loses_nothing(make, workers, servers, monkeypatch):
    monkeypatch.setattr(session, "PATIENCE", LONG)  # for a restart on a busy machine
    server = servers(appendonly="yes")
    streamer = make(server)
    futures = [streamer.submit([i]) for i in range(50)]
    eventually(lambda: streamer.stats().stream.length == 50)
    server.kill()
    futures += [streamer.submit([i]) for i in range(50, 100)]
    server.start()
    workers(server=server)
    assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(100)]


def test_a_restart_without_persistence_costs_only_time(make, workers, servers, monkeypatch):
    monkeypatch.setattr(session, "PATIENCE", LONG)
    server = servers()
    streamer = make(server, batch_size=64)
    futures = [streamer.submit([i]) for i in range(50)]
    large = streamer.submit(list(range(200)))
    eventually(lambda: streamer.stats().stream.length == 54)
    server.kill()
    server.start()
    workers(server=server)
    assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(50)]
    assert large.result(LONG) == list(range(0, 400, 2))


@pytest.mark.usefixtures("quick_audits")
def test_flushall_costs_only_time(make, workers, servers):
    redis_server = servers()
    workers(server=redis_server, batch_size=4)
    streamer = make(redis_server)
    client = redis_server.client()
    with Asking(streamer, 16):
        for _ in range(5):
            before = streamer.stats().completed
            eventually(lambda before=before: streamer.stats().completed > before + 100)
            client.flushall()


@pytest.mark.usefixtures("quick_audits")
def test_requests_that_a_worker_lost_are_sent_again(make, workers, queue):
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
    workers()
    assert [future.result(LONG) for future in futures] == [[0], [2], [4]]


@pytest.mark.usefixtures("quick_audits")
def test_replies_that_may_not_be_trimmed_do_no_harm(make, workers, servers):
    server = servers()
    client = server.client()
    client.execute_command("ACL", "SETUSER", "u", "on", ">p", "~*", "+@all", "-xtrim")
    worker = workers(server=server)
    streamer = make(f"redis://u:p@{server.address}")
    for i in range(3):
        assert streamer.predict([i]) == [2 * i]
    backend = streamer._backend
    assert client.xlen(backend._pair.reader._session.replies) >= 3
    worker.close()
    future = streamer.submit([3])
    eventually(lambda: streamer.stats().stream.length == 1)
    client.delete(backend._keys.queue)
    eventually(lambda: streamer.stats().stream.length == 1)  # it is sent again
    workers(server=server)
    assert future.result(LONG) == [6]


@pytest.mark.parametrize("right", ["+multi", "-multi"])
def test_requests_are_appended_together_if_the_user_may_do_that(make, workers, servers, right):
    server = servers()
    client = server.client()
    client.execute_command("ACL", "SETUSER", "u", "on", ">p", "~*", "+@all", right)
    streamer = make(f"redis://u:p@{server.address}")
    futures = [streamer.submit([i]) for i in range(100)]
    eventually(lambda: streamer.stats().stream.length == 100)
    together = client.info("commandstats").get("cmdstat_multi", {"calls": 0})["calls"]
    assert (together > 0) == (right == "+multi")
    workers(server=server)
    assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(100)]


def test_a_request_that_is_refused_does_not_keep_out_those_sent_with_it(make, workers, servers):
    server = servers()
    client = server.client()
    rights = ("~*:q", "~*:c", "~*:r:*", "+@all")
    client.execute_command("ACL", "SETUSER", "u", "on", ">p", *rights)
    streamer = make(f"redis://u:p@{server.address}")
    futures = [streamer.submit([i], priority=-(i % 2)) for i in range(100)]
    for future in futures[1::2]:
        assert "permission" in str(future.exception(LONG))
    workers(server=server)
    assert [future.result(LONG) for future in futures[::2]] == [[2 * i] for i in range(0, 100, 2)]


@pytest.mark.usefixtures("quick_audits")
def test_requests_that_wait_or_run_are_not_sent_again(make, workers, queue):
    streamer = make()
    futures = [streamer.submit([i]) for i in range(3)]
    eventually(lambda: len(queue) == 3)
    queue.redis.xgroup_create(queue.keys.queue, GROUP, id="0")
    queue.redis.xreadgroup(GROUP, "slow", {queue.keys.queue: ">"}, count=2)

    def asked():
        return queue.redis.info("commandstats").get("cmdstat_xpending", {"calls": 0})["calls"]

    before = asked()
    eventually(lambda: asked() > before + 6)
    assert len(queue) == 3
    workers()
    assert [future.result(LONG) for future in futures] == [[0], [2], [4]]


@pytest.mark.usefixtures("quick_audits")
def test_a_request_that_vanishes_each_time_is_given_up(make, queue):
    streamer = make()
    future = streamer.submit([1])
    deadline = time.monotonic() + LONG
    while not future.done() and time.monotonic() < deadline:
        queue.redis.delete(queue.keys.queue)
    with pytest.raises(WorkerLost, match=r"\b4\b.*secret"):
        future.result(0)
