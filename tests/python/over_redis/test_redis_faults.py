"""What happens to requests when workers die, stall, or cannot load their models."""

import os
import re
import signal

import pytest
from asking import Asking, kill_under_load
from process_models import ProcessGate, is_alive
from waits import eventually

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER
from redis_tools import MORTAL, QUICK, SLOW

from service_streamer import RequestTimeout, WorkerLost
from service_streamer._redis import explanation
from service_streamer._redis.protocol import GROUP

pytest_plugins = ["redis_fixtures"]
pytestmark = NEEDS_SERVER


def test_requests_of_a_killed_worker_are_answered_by_another(processes, workers, client, tmp_path):
    gate = ProcessGate(tmp_path)
    options = {"model_init_args": [str(tmp_path)], "batch_size": 2}
    doomed = processes("redis_models:Gated", **options)
    futures = client.send(*[[i] for i in range(4)])
    model = gate.wait_entered()
    eventually(lambda: client.pending() == 4)
    doomed.kill()
    eventually(lambda: not is_alive(model))
    gate.open()
    survivor = processes("redis_models:Gated", **options)
    answers = [answer for (answer,) in client.results(futures)]
    assert answers == [(i, survivor.pid) for i in range(4)]
    eventually(client.is_clean)
    eventually(lambda: len(client.consumers()) == 1)
    gate.close()


def test_a_worker_whose_room_is_full_takes_over_what_a_dead_one_had(workers, client, process_gate):
    worker = workers(process_gate, batch_size=1)
    futures = client.send([0])
    process_gate.wait_entered()
    futures += client.send([1])
    eventually(lambda: worker.held == 2)
    futures += client.send([2], [3], [4])
    client.redis.xreadgroup(GROUP, "dead", {client.keys.queue: ">"}, count=2)
    eventually(lambda: worker.counts.claimed == 2)  # and its model has not ended a batch
    process_gate.open()
    assert client.results(futures) == [[0], [2], [4], [6], [8]]


@pytest.mark.usefixtures("quick_audits")
def test_a_time_out_says_which_worker_is_silent_and_what_it_has(make, client, monkeypatch):
    monkeypatch.setattr(explanation, "_LATE", 0.1)
    future = make().submit([1])

    def reason():
        with pytest.raises(RequestTimeout) as caught:
            future.result(timeout=0)
        return str(caught.value)

    eventually(lambda: "no worker has joined the whole queue" in reason())
    client.redis.xgroup_create(client.keys.queue, GROUP, "0", mkstream=True)
    client.redis.xreadgroup(GROUP, "dead", {client.keys.queue: ">"})
    client.redis.xgroup_createconsumer(client.keys.queue, GROUP, "another")
    eventually(lambda: "1 of 2 workers is silent: dead (for " in reason())
    assert "with 1 request)" in reason()


def test_a_worker_killed_before_it_acknowledges_causes_no_second_answer(processes, client):
    processes(die_after_reply=True)
    assert client.ask([1, 2]) == [2, 4]
    assert client.pending() == 1
    processes()
    eventually(client.is_clean)
    while client.read(0.01):
        pass
    assert (client.accepted, client.ignored) == (1, 1)


def test_a_request_that_three_workers_ended_with_is_refused(processes, workers, client, tmp_path):
    gate = ProcessGate(tmp_path)
    (future,) = client.send(["poison"])
    for times in range(1, 4):
        claim_after = SLOW if times == 1 else QUICK  # what the first one fetches it does not claim
        doomed = processes(
            "redis_models:Gated", model_init_args=[str(tmp_path)], _claim_after=claim_after
        )
        gate.wait_entered()
        assert client.deliveries() == [times]
        doomed.kill()
    worker = workers()
    with pytest.raises(WorkerLost, match="3 workers in a row"):
        client.result(future)
    assert worker.counts.poison == 1
    assert client.ask([1]) == [2]
    eventually(client.is_clean)
    gate.close()


def test_requests_of_a_stalled_worker_are_claimed_and_it_drops_them(processes, client, tmp_path):
    gate = ProcessGate(tmp_path)
    options = {"model_init_args": [str(tmp_path)], "batch_size": 1}
    # it claims nothing in its turn, should the other one be late, but soon sees what was claimed
    stalled = processes("redis_models:Gated", _claim_after=SLOW, beats=SLOW, **options)
    futures = client.send(["running"], ["waiting"])
    gate.wait_entered()
    eventually(lambda: client.pending() == 2)
    stalled.signal(signal.SIGSTOP)
    other = processes("redis_models:Gated", **options)
    gate.wait_entered()
    eventually(lambda: client.deliveries() == [2, 2])
    stalled.signal(signal.SIGCONT)
    eventually(lambda: sum(map(int, re.findall(r"taken over (\d+)", stalled.log()))) == 2)
    assert client.deliveries() == [2, 2]
    gate.open()
    assert [answer for (answer,) in client.results(futures)] == [
        ("running", other.pid),
        ("waiting", other.pid),
    ]
    eventually(client.is_clean)
    # it claims nothing back, and does not run what waited
    entered = sorted(item for batch in gate.batches for item in batch)
    assert entered == ["running", "running", "waiting"]
    stalled.wait_ready(client)
    other.kill()
    ((again, pid),) = client.ask(["again"])
    assert (again, pid) == ("again", stalled.pid)
    gate.close()


def test_a_model_that_holds_the_gil_for_long_keeps_its_batch(processes, client, tmp_path):
    gate = ProcessGate(tmp_path)
    processes("redis_models:HoldsGil", model_init_args=[str(tmp_path)])
    (future,) = client.send([1])
    gate.wait_entered()
    idle, beats = [client.idle()], 0

    def has_many_heartbeats():
        nonlocal beats
        idle.append(client.idle())
        beats += idle[-1] < idle[-2]
        return beats == 10

    eventually(has_many_heartbeats)
    gate.open()
    assert client.result(future) == [True]
    gate.close()


@pytest.mark.timeout(300)
def test_fifty_kills_under_load_lose_nothing_and_double_nothing(make, processes, client):
    def start():
        return processes("redis_models:steps", **MORTAL)

    kill_under_load(start, [Asking(make(), 8) for _ in range(2)])
    eventually(client.is_clean)


def test_requests_of_a_worker_whose_model_no_longer_loads_go_to_another_worker(
    processes, workers, client, tmp_path
):
    gate = ProcessGate(tmp_path)
    broken = processes("redis_models:LoadsOnce", model_init_args=[str(tmp_path)])
    futures = client.send([1])
    model = gate.wait_entered()
    futures += client.send([2])
    eventually(lambda: client.pending() == 2)
    os.kill(model, signal.SIGKILL)
    workers()
    assert client.results(futures) == [[2], [4]]
    assert broken.wait() == 1
    assert "the GPU has fallen off the bus" in broken.log()
    eventually(client.is_clean)
    gate.close()
