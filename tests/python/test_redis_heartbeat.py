"""RedisWorker: what its heartbeats find."""

import pytest
from conftest import eventually

pytest.importorskip("redis")

from redis_server import find_server

pytest_plugins = ["redis_fixtures"]
pytestmark = [
    pytest.mark.over_redis,
    pytest.mark.skipif(find_server() is None, reason="no Redis server"),
]


def test_what_the_broker_has_lost_is_answered_after_any_number_of_heartbeats(
    workers, clients, servers, process_gate
):
    server = servers()
    worker, client = workers(process_gate, server=server), clients(server=server)
    (future,) = client.send([1])
    process_gate.wait_entered()
    client.redis.flushall()

    def scripts():
        return client.redis.info("commandstats").get("cmdstat_eval", {"calls": 0})["calls"]

    before = scripts()
    eventually(lambda: scripts() > before + 9)  # there are three in a round
    process_gate.open()
    assert client.result(future) == [2]
    assert (worker.counts.taken, worker.counts.withdrawn) == (0, 0)
