"""Warnings about mistakes, with the remedy and the page. Correct use gets none."""

import asyncio
import json
import logging
import sys
import threading
import types
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
from process_models import Model
from process_models import double as process_double
from thread_models import double
from told import told
from waits import eventually

from service_streamer import Pipeline, RequestTimeout, Stage, Streamer, ThreadedStreamer, batched
from service_streamer._placement import cores as _cores
from service_streamer._placement.places import Place
from service_streamer._processes import worker_main
from service_streamer._waiting import coroutines


def yields_outputs(batch):
    yield from batch


# ------------------------------------------------------------------------------------- asyncio


@pytest.fixture
def _untold(monkeypatch):
    monkeypatch.setattr(coroutines, "_told", False)


def in_new_thread(coroutine):
    """Run it where nothing has waited yet: only the first waits of a thread are looked at."""
    with ThreadPoolExecutor(1) as executor:
        executor.submit(asyncio.run, coroutine).result()


def blocked(remedy):
    text = "async def handler() blocks its event loop while it waits for a streamer: use "
    return told(text + remedy, "predict-in-async-def")


@pytest.mark.usefixtures("_untold")
@pytest.mark.parametrize(
    ("ask", "remedy"),
    [
        (lambda streamer: streamer.predict([1]), coroutines.FOR_PREDICT),
        (lambda streamer: streamer.predict_one(1), coroutines.FOR_PREDICT),
        (lambda streamer: list(streamer.map([1])), coroutines.FOR_PREDICT),
        (lambda streamer: streamer.submit([1]).result(), coroutines.FOR_PREDICT),
        (lambda streamer: list(streamer.stream(1)), coroutines.FOR_STREAM),
    ],
)
def test_a_coroutine_that_blocks_its_loop_is_reported_once(held, gate, ask, remedy):
    async def handler():
        ask(streamer)

    async def serve():
        await handler()
        await handler()

    def open_when_told():
        eventually(lambda: coroutines._told)
        gate.open()

    streamer = held()
    opening = threading.Thread(target=open_when_told)
    opening.start()
    with pytest.warns(RuntimeWarning) as seen:
        in_new_thread(serve())
    opening.join()
    (warning,) = seen
    assert str(warning.message) == blocked(remedy)
    assert warning.filename == __file__


@pytest.mark.usefixtures("_untold")
def test_calls_that_may_block_beside_a_loop_are_not_reported(streamers):
    streamer = streamers()
    module = compile("streamer.predict([1])", "imported.py", "exec")

    async def lifespan():  # of a server
        yield streamer.predict([1])

    async def correct():
        assert [outputs async for outputs in lifespan()] == [[2]]
        assert await streamer.apredict([1]) == await streamer.submit([1]) == [2]
        assert await asyncio.to_thread(streamer.predict, [1]) == [2]
        future = streamer.submit([1])
        await future
        assert future.result() == [2]
        exec(module, {"__name__": "imported", "streamer": streamer})  # a server imports its module

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        in_new_thread(correct())
    assert not coroutines._told


@pytest.mark.usefixtures("_untold")
def test_a_coroutine_may_ask_whether_a_request_has_ended(held):
    future = held().first

    async def ask():
        for get in (future.result, future.exception):
            with pytest.raises(RequestTimeout):
                get(timeout=0)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        in_new_thread(ask())
    assert not coroutines._told


def test_a_stream_may_block_while_another_thread_imports_asyncio(monkeypatch):
    for name in ("asyncio", "asyncio.events"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    coroutines.warn_in_loop(coroutines.FOR_STREAM)


# --------------------------------------------------------------------------------- no batches


@pytest.mark.parametrize(
    ("kind", "model"),
    [(ThreadedStreamer, double), (Streamer, process_double), (Streamer, Model)],
)
def test_a_batch_size_of_1_is_reported(kind, model):
    options = {"mp_start_method": "fork"} if kind is Streamer else {}
    with pytest.warns(UserWarning, match="batch_size=1") as seen:
        kind(model, batch_size=1, **options).close()
    (warning,) = (each for each in seen if each.category is UserWarning)  # not of the fork
    assert str(warning.message) == told(
        f"batch_size=1: {model.__qualname__} gets one item at a time, so no batches are formed; "
        "choose what fits into memory, such as batch_size=64",
        "batch_size1",
    )
    assert warning.filename == __file__


@pytest.mark.parametrize(
    "make",
    [
        lambda: ThreadedStreamer(yields_outputs, 1),  # each stream by itself
        lambda: ThreadedStreamer(double, 1, worker_num=2),
        lambda: batched(batch_size=1)(double),
        lambda: Pipeline(Stage(double), Stage(double)),
        lambda: Stage(double).make_streamer(),
    ],
)
def test_a_batch_size_of_1_may_be_right(make):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make().close()


# ------------------------------------------------------------------------- cores and threads


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(_cores.os, "sched_getaffinity", lambda pid: {0, 1})


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize(
    ("workers", "threads", "text"),
    [
        (3, 1, "3 workers with 1 thread each share 2 cores, so they wait for each other: use at "
               "most worker_num=2"),
        (2, 4, "2 workers with 4 threads each share 2 cores, so they wait for each other: use at "
               "most worker_num=1, or torch.set_num_threads(1) before the first request"),
        (1, 8, "1 worker with 8 threads shares 2 cores, so they wait for each other: "
               "torch.set_num_threads(2) before the first request"),
        (2, 1, None),
        (1, 2, None),
        (8, None, None),  # the workers use a GPU
    ],
)  # fmt: skip
def test_more_threads_than_cores_are_counted(workers, threads, text):
    complaint = _cores.complaint(workers, threads)
    assert complaint == (text and told(text, "more-workers-than-cores"))


@pytest.fixture
def torch_of_4_threads(monkeypatch):
    """A module that is as far as this package looks at torch."""
    torch = types.ModuleType("torch")
    torch.nn = types.ModuleType("torch.nn")
    torch.nn.Module = type("Module", (), {"predict": staticmethod(double)})
    torch.get_num_threads = lambda: 4
    monkeypatch.setattr(_cores, "sys", types.SimpleNamespace(modules={
        "torch": torch, "torch.nn": torch.nn,
    }))  # fmt: skip
    return torch


class Lazy:
    """An object that isinstance() would load."""

    @property
    def __class__(self):
        raise AssertionError("loaded")


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("worker_num", [1, 2])
@pytest.mark.parametrize("is_torch", [True, False])
def test_threads_of_a_torch_model_are_reported_at_the_first_request(
    torch_of_4_threads, caplog, is_torch, worker_num
):
    network = torch_of_4_threads.nn.Module() if is_torch else types.SimpleNamespace(predict=double)
    lazy = Lazy()

    def predict(batch):
        return network.predict(batch) if lazy is not None else unbound

    if lazy is None:
        unbound = None
    complaint = _cores.complaint(worker_num, 4)
    with ThreadedStreamer(predict, 8, worker_num=worker_num) as streamer:
        assert caplog.records == []
        assert streamer.stats().intra_op_threads is None
        assert streamer.predict([1]) == streamer.predict([1]) == [2]
        assert streamer.stats().intra_op_threads == (4 if is_torch else None)
        assert (" with 4 intra-op threads" in streamer.explain()) == is_torch
        assert (complaint in streamer.explain()) == is_torch
    told_of = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(told_of) == is_torch
    for record in told_of:
        assert record.message == complaint
        assert (record.workers, record.threads) == (worker_num, 4)


def test_only_the_threads_of_a_torch_model_are_counted(torch_of_4_threads):
    network = torch_of_4_threads.nn.Module()
    assert _cores.cpu_threads(network) == _cores.cpu_threads(lambda batch: network) == 4
    torch_of_4_threads.get_num_threads = None
    assert _cores.cpu_threads(network) is None  # it raises
    assert _cores.cpu_threads(double) is None


def test_a_worker_process_without_torch_reports_no_threads():
    assert json.loads(worker_main._about(double, Place(1)))["cpu_threads"] is None
