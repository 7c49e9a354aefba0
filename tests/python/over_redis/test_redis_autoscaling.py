"""What an autoscaler of workers relies on: the length of the queue, and the end of a worker."""

import itertools
import json
import subprocess
import sys
import threading
from pathlib import Path

import counted_model
import pytest
from waits import LONG, eventually

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER

from service_streamer._redis.keys import Keys

pytest_plugins = ["redis_fixtures"]
pytestmark = [*NEEDS_SERVER, pytest.mark.slow]


def test_each_unanswered_request_counts_until_its_end(server, prefix, make, workers, process_gate):
    client, keys = server.client(), Keys(prefix)

    def lengths():
        return client.xlen(keys.main.key), client.xlen(keys.bulk.key)

    streamer = make()
    main = [streamer.submit([number]) for number in range(4)]
    bulk = [streamer.submit([number], priority=-1) for number in range(3)]
    eventually(lambda: lengths() == (4, 3))  # without a worker
    main.pop().cancel()
    eventually(lambda: lengths() == (3, 3))
    workers(process_gate, batch_size=2)
    process_gate.wait_entered()
    eventually(lambda: streamer.stats().stream.pending > 0)
    assert lengths() == (3, 3)  # also those at the worker
    process_gate.open()
    for future in (*main, *bulk):
        future.result(LONG)
    eventually(lambda: lengths() == (0, 0))


@pytest.fixture
def start(server, prefix, tmp_path):
    """Starts a worker with the model `Counted`."""
    arguments = json.dumps([str(tmp_path), 0.01])
    command = [sys.executable, "-m", "service_streamer", "redis-worker", "counted_model:Counted"]
    command += ["--broker", server.url, "--prefix", prefix, "--batch-size", "8"]
    command += ["--model-init-args", arguments, "--mp-start-method", "fork"]
    started = []

    def start():
        folder = Path(counted_model.__file__).parent
        started.append(subprocess.Popen(command, cwd=folder))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "rounds", [2, pytest.param(30, marks=[pytest.mark.endurance, pytest.mark.timeout(300)])]
)
def test_workers_that_end_under_load_lose_nothing_and_run_nothing_twice(
    make, start, threads, tmp_path, rounds
):
    start()
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
        more = [start(), start()]
        eventually(lambda: len(names() - before) == 2)  # noqa: B023
        wait_for_answers(100)
        for worker in more:
            worker.terminate()
        assert [worker.wait(LONG) for worker in more] == [0, 0]
    over.set()
    assert threads.join() == [None] * len(answered)
    runs = counted_model.runs(tmp_path)
    assert (len(runs), set(runs.values())) == (sum(answered), {1})
