"""RedisWorker: what it does with requests."""

import os
import signal

import pytest
from process_models import Model, deadly
from waits import LONG, eventually

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER
from redis_tools import SLOW, new_prefix

from service_streamer import (
    RedisWorker,
    WorkerLost,
)

pytest_plugins = ["redis_fixtures"]
pytestmark = [*NEEDS_SERVER, pytest.mark.often]


# --------------------------------------------------------------------- requests


def test_prefixes_do_not_see_each_other(workers, raw_clients):
    prefixes = ["", new_prefix(), new_prefix()]
    for prefix in prefixes:
        workers(Model, prefix=prefix, model_init_args=[prefix])
    for prefix in prefixes:
        (seen,) = raw_clients(prefix).ask(["item"])
        assert seen["args"] == (prefix,)


def test_requests_of_many_clients_share_batches(workers, raw_clients, process_gate):
    worker = workers(process_gate)
    both = raw_clients(), raw_clients()
    (first,) = both[0].send(["first"])
    process_gate.wait_entered()
    futures = [both[i % 2].send([i])[0] for i in range(6)]
    eventually(lambda: worker.queued == 6)
    process_gate.open()
    for i, future in enumerate(futures):
        assert both[i % 2].result(future) == [2 * i]
    assert both[0].result(first) == ["firstfirst"]
    assert {i % 2 for i in process_gate.batches[1]} == {0, 1}


def test_requests_of_higher_priority_go_first(workers, client, process_gate):
    workers(process_gate, batch_size=1, worker_num=1)
    futures = client.send(["first"])
    process_gate.wait_entered()
    futures += client.send(["low"], priority=0)
    eventually(lambda: client.pending() == 2)
    process_gate.open()
    futures += client.send(["high"], priority=5)
    assert client.results(futures) == [["firstfirst"], ["lowlow"], ["highhigh"]]


def test_a_model_process_that_dies_is_replaced_and_its_batch_run_again(
    workers, client, process_gate
):
    workers(process_gate)
    (future,) = client.send([1])
    os.kill(process_gate.wait_entered(), signal.SIGKILL)
    process_gate.open()
    assert client.result(future) == [2]
    assert client.deliveries() == []


def test_a_request_that_kills_its_process_twice_is_lost_alone(workers, client):
    worker = workers(deadly)
    (bad,) = client.send(["die:SIGKILL"])
    with pytest.raises(WorkerLost):
        client.result(bad)
    assert client.ask(["good"]) == ["good"]
    assert worker.counts.poison == 0


# ------------------------------------------------------- deadlines, cancellation


def test_an_entry_that_comes_too_late_is_dropped_unread(workers, client, process_gate):
    client.send(["late"], deadline=-LONG)
    (good,) = client.send(["good"], deadline=LONG)
    worker = workers(process_gate, _claim_after=SLOW)
    process_gate.open()
    assert client.result(good) == ["goodgood"]
    assert process_gate.batches == [["good"]]
    assert worker.counts.expired == 1
    eventually(client.is_clean)


# ------------------------------------------------------------ several workers


def test_large_entries_are_counted_by_their_items(workers, client, process_gate):
    workers(process_gate, batch_size=8)
    futures = client.send(*[[i] * 8 for i in range(10)])
    process_gate.wait_entered()
    eventually(lambda: client.pending() == 2)
    process_gate.open()
    assert client.results(futures) == [[2 * i] * 8 for i in range(10)]


def test_each_process_has_its_device(workers, client):
    workers(Model, worker_num=2, cuda_devices=(0, "GPU-1"), batch_size=1)
    seen = set()

    def ask():
        futures = client.send(*[[i] for i in range(8)])
        seen.update(answer["device"] for (answer,) in client.results(futures))
        return seen == {"0", "GPU-1"}

    eventually(ask)


def test_run_forever_takes_a_device(server, prefix, client, threads):
    worker = RedisWorker(Model, 8, redis_broker=server.url, prefix=prefix)
    threads.run(worker.run_forever, 3)
    (seen,) = client.ask([1])
    assert (seen["device"], seen["gpu_id"]) == ("3", 3)
    worker.close()
    assert threads.join() == [None]
