"""An application written for service_streamer 0.1.2 runs unchanged, and without its faults."""

import contextlib
import gc
import glob
import importlib
import inspect
import os
import threading
import time

import pytest
from thread_models import double
from waits import LONG, eventually

import service_streamer
from service_streamer import (
    Future,
    RedisStreamer,
    RedisWorker,
    Streamer,
    ThreadedStreamer,
    run_redis_workers_forever,
)

NONE = inspect.Parameter.empty
COMMON = {"batch_size": NONE, "max_latency": 0.1}
BROKER = {"redis_broker": "localhost:6379", "prefix": ""}
INIT = {"model_init_args": None, "model_init_kwargs": None}
SEVERAL = {"worker_num": 1, "cuda_devices": None}
TIMEOUT = {"worker_timeout": 20}
SPAWN = {"mp_start_method": "spawn"}
SIGNATURES = {
    ThreadedStreamer: {"predict_function": NONE, **COMMON, **TIMEOUT},
    Streamer: {"predict_function_or_model": NONE, **COMMON, **SEVERAL, **INIT}
    | {"wait_for_worker_ready": False, **SPAWN, **TIMEOUT},
    RedisStreamer: BROKER,
    RedisWorker: {"model_class": NONE, **COMMON, **BROKER, **INIT},
    RedisWorker.run_forever: {"gpu_id": None},
    run_redis_workers_forever: {
        "model_class": NONE,
        **COMMON,
        **SEVERAL,
        **BROKER,
        **SPAWN,
        **INIT,
    },
}


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda each: each.__qualname__)
def test_positions_and_defaults_are_those_of_the_original(function):
    parameters = inspect.signature(function).parameters.values()
    positional = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    found = [(each.name, each.default) for each in positional if each.name != "self"]
    assert found == [*SIGNATURES[function].items()]
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    assert all(each.kind in named for each in parameters if each not in positional)


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("service_streamer.service_streamer", ["ThreadedStreamer", "Future", "ManagedModel"]),
        ("service_streamer.managed_model", ["ManagedModel"]),
        ("service_streamer", ["ThreadedStreamer", "ManagedModel"]),
    ],
)
def test_modules_of_the_original_have_its_classes(module, names):
    for name in names:
        found = getattr(importlib.import_module(module), name)
        assert found is getattr(service_streamer, name)


def test_predict_function_gets_a_plain_list_and_callers_get_lists(streamers, journal):
    streamer = streamers(lambda batch: journal.append(type(batch)) or tuple(batch), 64, 0.1)
    assert streamer.predict(["twinkle twinkle [MASK] star."]) == ["twinkle twinkle [MASK] star."]
    assert streamer.predict(("a", "b")) == ["a", "b"]
    assert set(journal.all()) == {list}


def test_futures_of_the_original_example(streamers):
    streamer = streamers(double, batch_size=64)
    xs = [streamer.submit([i]) for i in range(200)]
    assert isinstance(xs[0], Future)
    assert [future.result() for future in xs] == [[2 * i] for i in range(200)]
    assert all(future.done() for future in xs)


@pytest.mark.not_redis
def test_old_names_of_the_life_cycle_work(streamers):
    streamer = streamers()
    streamer._wait_for_worker_ready()
    streamer._wait_for_worker_ready(timeout=1)
    streamer.wait_ready(1)
    assert streamer.predict([1]) == [2]
    assert streamer.destroy_workers() is None
    streamer.destroy_workers()


# ------------------------------------------------------- faults of the original


@pytest.mark.parametrize("output", ["items", "batch"])
def test_an_empty_batch_gives_an_empty_list_without_the_model(streamers, output):
    streamer = streamers(lambda batch: pytest.fail("the model was called"), output=output)
    assert streamer.predict([]) == []
    future = streamer.submit([])
    assert future.done()
    assert future.result() == []


def test_a_lone_request_does_not_wait_for_company(streamers):
    streamer = streamers(batch_size=64, max_latency=LONG, worker_timeout=LONG / 2)
    assert [streamer.predict([i]) for i in range(3)] == [[0], [2], [4]]


@pytest.mark.not_redis
def test_max_latency_bounds_the_wait_while_requests_trickle(streamers):
    # the original starts its wait anew with each arrival
    streamer = streamers(batch_size=10**6, max_latency=1.0, policy="window")
    streamer.wait_ready(LONG)
    first = streamer.submit([0])
    until = time.monotonic() + LONG
    while not first.done():
        assert time.monotonic() < until, "it waits as long as they come"
        streamer.submit([1])
        threading.Event().wait(0.01)
    assert first.result() == [0]
    stats = streamer.stats()
    assert stats.close_reasons["window"] == stats.batches > 0


def test_an_idle_streamer_does_not_wake_up(streamers):
    gc.collect()  # or a thread would end what a test before this one has left
    before = set(os.listdir("/proc/self/task"))
    streamer = streamers(max_latency=0.001)
    streamer.predict([1])
    streamer.submit([1], timeout=LONG).result()  # starts the timer, too
    mine = [f"/proc/self/task/{task}" for task in set(os.listdir("/proc/self/task")) - before]
    assert mine, "no thread was started"
    for worker in streamer.stats().worker_processes:
        mine += glob.glob(f"/proc/{worker.pid}/task/*")

    def switches():
        counts = {}
        for thread in mine:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                with open(f"{thread}/status") as status:
                    lines = [line for line in status if "ctxt_switches" in line]
                counts[thread] = sum(int(line.split()[1]) for line in lines)
        return counts

    quiet = threading.Event()

    def a_second_without_switches():
        start = switches()
        quiet.wait(1.0)
        return switches() == start

    eventually(a_second_without_switches)  # once all of them have come to rest
    assert switches(), "no thread is there"
