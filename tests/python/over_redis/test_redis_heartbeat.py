"""RedisWorker: what its heartbeats find, and what it claims."""

import pytest
from waits import eventually

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER
from redis_tools import SLOW

from service_streamer._redis.gateway import lease_keeper
from service_streamer._redis.gateway.fetcher import Fetcher
from service_streamer._redis.gateway.lease_keeper import chance_of_turn
from service_streamer._redis.protocol import GROUP

pytest_plugins = ["redis_fixtures"]
pytestmark = NEEDS_SERVER


def test_what_the_broker_has_lost_is_answered_after_any_number_of_heartbeats(
    workers, raw_clients, servers, process_gate
):
    server = servers()
    worker, client = workers(process_gate, server=server), raw_clients(server=server)
    (future,) = client.send([1])
    process_gate.wait_entered()
    client.redis.flushall()

    def scripts():
        return client.redis.info("commandstats").get("cmdstat_eval", {"calls": 0})["calls"]

    before = scripts()
    eventually(lambda: scripts() > before + 9)  # there are three in a round
    process_gate.open()
    assert client.result(future) == [2]
    assert (worker.counts.taken_over, worker.counts.cancelled) == (0, 0)
    assert client.ask([2]) == [4]
    eventually(client.is_clean)


def test_what_is_claimed_before_the_first_fetch_is_delivered_once(
    workers, client, process_gate, monkeypatch, caplog
):
    """Else two workers that die with it would be taken for three."""
    caplog.set_level("INFO", "service_streamer")
    (future,) = client.send([1])
    client.redis.xgroup_create(client.keys.queue, GROUP, "0")
    client.redis.xreadgroup(GROUP, "dead", {client.keys.queue: ">"})
    fetch = Fetcher._fetch

    def fetch_late(fetcher, connection):
        eventually(lambda: client.deliveries() == [2])
        fetch(fetcher, connection)

    monkeypatch.setattr(Fetcher, "_fetch", fetch_late)
    workers(process_gate)
    process_gate.wait_entered()
    eventually(lambda: "answers the queue" in caplog.text)
    assert client.deliveries() == [2]
    monkeypatch.undo()
    process_gate.open()
    assert client.result(future) == [2]


def test_about_ten_of_many_workers_claim_in_each_round():
    assert [chance_of_turn(workers) for workers in (1, 2, 10)] == [1, 1, 1]
    assert [workers * chance_of_turn(workers) for workers in (11, 100, 300)] == pytest.approx(
        [10] * 3
    )
    assert chance_of_turn(10_000) == pytest.approx(1 / 30)


@pytest.mark.usefixtures("quick_rounds")
def test_a_worker_that_is_alone_after_many_have_left_claims_in_its_next_round(
    workers, client, monkeypatch
):
    queue, redis = client.keys.queue, client.redis
    (future,) = client.send([1])
    redis.xgroup_create(queue, GROUP, "0")
    redis.xreadgroup(GROUP, "dead", {queue: ">"})
    others = [f"worker-{number}" for number in range(100)]
    for name in others:
        redis.xgroup_createconsumer(queue, GROUP, name)
    worker = workers(_claim_after=SLOW).wait_ready(client)
    main = worker.worker._gateway.links[0]._keeper._fetchers[0]
    eventually(lambda: main.workers > 100)
    monkeypatch.setattr(lease_keeper.random, "random", lambda: 0.9)  # never its turn among many
    for name in others:
        redis.xgroup_delconsumer(queue, GROUP, name)
    redis.xclaim(queue, GROUP, "dead", 0, client.entries, idle=2000 * SLOW)
    assert client.result(future) == [2]
    eventually(client.is_clean)
