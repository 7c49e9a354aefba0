"""RedisStreamer and RedisWorker at a master that refuses to write without its replicas."""

import pytest
from waits import LONG, eventually

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER

from service_streamer import BrokerError, RequestTimeout
from service_streamer._redis.client import session

pytest_plugins = ["redis_fixtures"]
pytestmark = NEEDS_SERVER

SOON = 0.05  # s


@pytest.fixture
def master(servers):
    return servers(min_replicas_to_write=1, repl_diskless_sync_delay=0)


@pytest.fixture
def replicate(servers, master):
    """Gives the master a replica, twice; they are made first, before workers fork."""
    made = [servers() for _ in range(2)]

    def replicate():
        replica = made.pop()
        replica.client().execute_command("REPLICAOF", "127.0.0.1", master.port)
        eventually(lambda: replicas(master) == 1)
        return replica

    return replicate


def replicas(master):
    return master.client().info("replication")["min_slaves_good_slaves"]


@pytest.mark.usefixtures("quick_audits")
def test_requests_end_with_the_brokers_words_when_no_replica_comes(make, master, monkeypatch):
    monkeypatch.setattr(session, "FIRST_PATIENCE", 0.0)  # for a broker that is not there at all
    monkeypatch.setattr(session, "PATIENCE", LONG)
    streamer = make(master)
    with pytest.raises(RequestTimeout):
        streamer.predict([1], timeout=SOON)
    monkeypatch.setattr(session, "PATIENCE", 0.5)
    future = streamer.submit([2])  # while the reader finds the broker several times
    with pytest.raises(BrokerError, match="NOREPLICAS") as caught:
        future.result(LONG)
    assert caught.value.transient


def test_both_sides_wait_for_a_replica(
    make, workers, master, replicate, process_gate, monkeypatch, caplog
):
    monkeypatch.setattr(session, "PATIENCE", LONG)
    worker = workers(process_gate, server=master)
    streamer = make(master)

    def both_wait():
        failed = [record.module for record in caplog.records if "NOREPLICAS" in record.getMessage()]
        return set(failed) == {"retrying", "session"}  # the worker's, the client's

    first = streamer.submit([1])
    eventually(both_wait)
    replica = replicate()
    process_gate.wait_entered()
    eventually(  # for the last thread of the worker
        lambda: any(
            record.module == "retrying" and "NOREPLICAS" not in record.getMessage()
            for record in caplog.records
        )
    )

    caplog.clear()
    replica.kill()
    eventually(lambda: replicas(master) == 0)
    process_gate.open()
    second = streamer.submit([2])
    eventually(both_wait)
    assert not first.done()
    replicate()
    assert [first.result(LONG), second.result(LONG)] == [[2], [4]]
    assert worker.error is None
