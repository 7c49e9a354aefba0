"""Exceptions of the model arrive as what they are, and end nothing of the caller."""

import asyncio
import pickle

import pytest
from model_errors import (
    CONTROL,
    EXITS,
    OWN_INIT,
    iterate_named,
    picture,
    raise_named,
    return_named,
    yield_named,
)
from waits import LONG

from service_streamer import SerializationError, WorkerLost
from service_streamer._base.errors import WorkerTraceback
from service_streamer._engine.pickling import pack_error, unpack_error
from service_streamer.server._errors import failure

MODELS = [raise_named, return_named, yield_named]


@pytest.mark.every_python
@pytest.mark.parametrize("output", ["items", "batch"])
@pytest.mark.parametrize("model", MODELS)
def test_what_would_end_a_loop_or_a_task_of_the_caller_is_the_cause(streamers, model, output):
    streamer = streamers(model, output=output)
    for name, original in CONTROL.items():
        with pytest.raises(RuntimeError, match=rf"{type(original).__name__}.*the end") as info:
            streamer.predict([name])
        cause = info.value.__cause__
        assert (type(cause), cause.args) == (type(original), original.args)
        if model is raise_named:
            assert "in raise_named" in str(cause.__cause__)
    for name in EXITS:
        with pytest.raises(WorkerLost, match="the end"):
            streamer.predict([name])
    assert len(streamer.predict(["good"])) == 1


@pytest.mark.parametrize("model", [raise_named, yield_named, iterate_named])
def test_a_stream_does_not_end_as_if_it_were_complete(streamers, model):
    streamer = streamers(model)
    for name in CONTROL:
        pieces = streamer.stream(name, timeout=LONG)
        with pytest.raises(RuntimeError, match="the end"):
            list(pieces)
    for name in EXITS:
        with pytest.raises(WorkerLost, match="the end"):
            list(streamer.stream(name, timeout=LONG))


@pytest.mark.every_python
def test_every_way_to_wait_ends_with_the_error(streamers):
    streamer = streamers(raise_named)
    for name in CONTROL:
        with pytest.raises(RuntimeError, match="the end"):
            list(map(streamer.predict_one, ["good", name]))
        with pytest.raises(RuntimeError, match="the end"):
            list(streamer.map([name], chunk_size=1))
    asyncio.run(wait_in_all_ways(streamer))


async def wait_in_all_ways(streamer):
    loop = asyncio.get_running_loop()
    for name in CONTROL:
        for waiting in (
            asyncio.wrap_future(streamer.submit([name])),
            asyncio.to_thread(streamer.predict, [name]),
            loop.run_in_executor(None, streamer.predict, [name]),
            streamer.apredict([name]),
            _all_pieces(streamer, name),
        ):
            with pytest.raises(RuntimeError, match="the end"):
                await asyncio.wait_for(waiting, LONG)


def nothing(item):
    return next(iter(()))


async def _all_pieces(streamer, item):
    return [piece async for piece in streamer.astream(item, timeout=LONG)]


@pytest.mark.parametrize("options", [{"key": nothing}, {"weight": nothing, "max_weight": 9}])
def test_an_end_of_iteration_in_a_key_does_not_end_the_loop_of_the_caller(streamers, options):
    streamer = streamers(**options)
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(map(streamer.predict_one, [1, 2]))


@pytest.mark.every_python
@pytest.mark.parametrize("name", OWN_INIT)
def test_an_exception_with_an_init_of_its_own_is_the_same_everywhere(streamers, name):
    with pytest.raises(type(OWN_INIT[name]())) as info:
        streamers(raise_named).predict([name])
    assert picture(info.value) == picture(OWN_INIT[name]())
    assert isinstance(info.value.__cause__, WorkerTraceback)
    assert "in raise_named" in str(info.value.__cause__)


def test_the_status_of_an_exception_does_not_depend_on_where_the_model_runs(streamers):
    future = streamers(raise_named).submit(["invalid-input"])
    told = failure(future.exception(LONG))
    assert (told.status, told.message) == (400, "text 3 of TEXT is empty")


def test_an_exception_that_its_caller_cannot_import_arrives_as_text(monkeypatch):
    import model_errors

    packed = pack_error(OWN_INIT["keyword"]())
    monkeypatch.delattr(model_errors, "Coded")
    error = unpack_error(packed)
    assert isinstance(error, SerializationError)
    assert "model_errors.Coded: 7: odd" in str(error)


def test_causes_that_form_a_circle_do_not_stop_an_error():
    error, cause = ValueError("one"), ValueError("two")
    error.__cause__, cause.__cause__ = cause, error
    copied = unpack_error(pickle.loads(pickle.dumps(pack_error(error))))
    assert (str(copied), str(copied.__cause__)) == ("one", "two")
