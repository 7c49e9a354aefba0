"""Workers that an autoscaler starts and ends by the length of the queue, down to none."""

import functools
import itertools
import json
import subprocess
import sys
import threading

import pytest
from waits import LONG, eventually

pytest.importorskip("yaml")
pytest.importorskip("numpy")
pytest.importorskip("redis")

from autoscaling_imports import BENCHMARKS, Pods, counted, manifests, queue_reader
from redis_server import NEEDS_SERVER

pytest_plugins = ["redis_fixtures"]
pytestmark = [*NEEDS_SERVER, pytest.mark.slow]

SPEED = 60  # seconds of the autoscaler in one of the test


@pytest.fixture
def length(server, prefix):
    """Reads what KEDA reads: the lengths of both streams."""
    return queue_reader(server.client(), prefix)


@pytest.fixture
def pods(server, prefix, tmp_path):
    """Processes of workers with the model `Counted`."""
    arguments = json.dumps([str(tmp_path), 0.01, 0.001])
    command = [sys.executable, "-m", "service_streamer", "redis-worker"]
    command += ["autoscaling.counted:Counted", "--broker", server.url, "--prefix", prefix]
    command += ["--batch-size", "8", "--model-init-args", arguments, "--mp-start-method", "fork"]
    with Pods(functools.partial(subprocess.Popen, command, cwd=BENCHMARKS), grace=LONG) as pods:
        yield pods


def test_each_unanswered_request_counts_until_its_end(length, make, workers, process_gate):
    streamer = make()
    main = [streamer.submit([number]) for number in range(4)]
    bulk = [streamer.submit([number], priority=-1) for number in range(3)]
    eventually(lambda: length() == {"main": 4, "bulk": 3})  # without a worker
    main.pop().cancel()
    eventually(lambda: length() == {"main": 3, "bulk": 3})
    workers(process_gate, batch_size=2)
    process_gate.wait_entered()
    eventually(lambda: streamer.stats().stream.pending > 0)
    assert length() == {"main": 3, "bulk": 3}  # also those at the worker
    process_gate.open()
    for future in (*main, *bulk):
        future.result(LONG)
    eventually(lambda: length() == {"main": 0, "bulk": 0})


def test_a_request_brings_the_first_worker_and_quiet_ends_the_last_one(
    length, make, pods, tmp_path
):
    streamer = make()
    steps = pods.drive(manifests.scaled_object(cooldownPeriod=60), length, SPEED)
    for visit in range(2):
        futures = [streamer.submit([100 * visit + number]) for number in range(100)]
        futures.append(streamer.submit([100 * visit + 100], priority=-1))
        most = 0
        for _ in steps:
            most = max(most, pods.replicas)
            if all(future.done() for future in futures) and not pods.replicas + pods.ending:
                break
        assert most > 1
        assert [f.result(0) for f in futures] == [[100 * visit + n] for n in range(101)]
        assert {each.code for each in pods.ended} <= {0, -15}  # or before it could begin
        assert set(counted.runs(tmp_path).values()) == {1}
        tmp_path = empty(tmp_path)


def empty(folder):
    """Forget what was run."""
    for file in folder.iterdir():
        file.unlink()
    return folder


@pytest.mark.parametrize(
    "rounds", [2, pytest.param(30, marks=[pytest.mark.endurance, pytest.mark.timeout(300)])]
)
def test_workers_that_end_under_load_lose_nothing_and_run_nothing_twice(
    make, pods, threads, tmp_path, rounds
):
    pods.scale(1)
    streamer = make()
    streamer.wait_ready(LONG)
    numbers, answered, over = itertools.count(), [0] * 16, threading.Event()

    def ask(caller):
        while not over.is_set():
            number = next(numbers)
            assert streamer.predict([number], timeout=LONG) == [number]
            answered[caller] += 1

    def names():
        return {each.name for each in streamer.stats().stream.consumers}

    def wait_for_answers(count):
        before = sum(answered)
        eventually(lambda: sum(answered) >= before + count)

    for caller in range(len(answered)):
        threads.run(ask, caller)
    for _ in range(rounds):
        before = names()
        pods.scale(3)
        eventually(lambda: len(names() - before) == 2)  # noqa: B023
        wait_for_answers(100)
        pods.scale(1)
        eventually(lambda: pods.collect() or not pods.ending)
    over.set()
    assert threads.join() == [None] * len(answered)
    assert [each.code for each in pods.ended] == [0] * (2 * rounds)
    runs = counted.runs(tmp_path)
    assert (len(runs), set(runs.values())) == (sum(answered), {1})
