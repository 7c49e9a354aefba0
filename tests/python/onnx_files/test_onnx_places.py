"""`OnnxModel` in a pipeline, and the end of a batch that no caller waits for any more."""

import asyncio
import contextlib

import pytest

pytest.importorskip("numpy")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx_models
from waits import LONG, eventually

from service_streamer import Pipeline, RequestTimeout, Stage, StreamerClosed, ThreadedStreamer
from service_streamer.onnx import OnnxModel

ENDLESS = 1 << 40


def lengths(texts):
    return [len(text) for text in texts]


def test_a_file_is_a_stage_of_a_pipeline(tmp_path):
    model = OnnxModel(onnx_models.identity(tmp_path / "model.onnx", onnx_models.INT64))
    in_processes = {"processes": True, "mp_start_method": "fork"}
    with Pipeline(lengths, Stage(model, 8), Stage(model, 8, **in_processes)) as pipeline:
        assert pipeline.predict(["a", "abc"]) == [1, 3]


# ----------------------------------------------------------------- runs that are stopped


@pytest.fixture
def streamer(tmp_path):
    """One thread, and batches of eight items."""
    model = OnnxModel(onnx_models.counting(tmp_path / "model.onnx"), intra_op_threads=1)
    with ThreadedStreamer(model, 8, policy="window", max_latency=0.01) as streamer:
        assert streamer.predict([1]) == [2]
        yield streamer


def is_running(streamer):
    return streamer.stats().running_batches == 1


def miss_deadline(streamer):
    with pytest.raises(RequestTimeout):
        streamer.predict([ENDLESS], timeout=0.2)


def miss_unwatched_deadline(streamer):
    eventually(streamer.submit([ENDLESS], timeout=0.2).done)


def cancel_task(streamer):
    async def ask():
        task = asyncio.ensure_future(streamer.apredict([ENDLESS]))
        while not is_running(streamer):
            await asyncio.sleep(0.001)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(ask())


@pytest.mark.parametrize("end", [miss_deadline, miss_unwatched_deadline, cancel_task])
def test_a_run_stops_when_all_of_its_requests_have_ended(streamer, end):
    end(streamer)
    assert streamer.predict([2], timeout=LONG) == [4]  # there is one thread
    assert streamer.stats().failed == 0


def test_closing_stops_a_run(streamer):
    future = streamer.submit([ENDLESS])
    eventually(lambda: is_running(streamer))
    streamer.close(timeout=0)
    assert isinstance(future.exception(LONG), StreamerClosed)
    eventually(lambda: not streamer._predict_function._runs)


def test_a_run_goes_on_while_a_request_waits_for_it(streamer):
    streamer.configure(max_latency=LONG)
    goes, stays = (streamer.submit([1 << 15] * 4) for _ in range(2))
    eventually(lambda: is_running(streamer))
    goes._abandon()
    assert stays.result(LONG) == [1 << 16] * 4


def test_only_the_run_that_no_request_waits_for_stops(tmp_path):
    model = OnnxModel(onnx_models.counting(tmp_path / "model.onnx"), intra_op_threads=1)
    with ThreadedStreamer(model, 8, policy="greedy", worker_num=2) as streamer:
        stays = streamer.submit([1 << 16])
        eventually(lambda: is_running(streamer))
        goes = streamer.submit([ENDLESS])
        eventually(lambda: streamer.stats().running_batches == 2 or stays.done())
        goes._abandon()
        assert stays.result(LONG) == [1 << 17]
        assert streamer.predict([1, 2], timeout=LONG) == [3, 4]
