"""Bad input gets a clear error that names what was received, and affects no other request."""

import collections
import copy
import functools
import math
import pickle
import re

import pytest
from thread_models import Indexed, double

from service_streamer import (
    CancelledError,
    ManagedModel,
    OutputSizeMismatch,
    QueueFull,
    RequestTimeout,
    SerializationError,
    Streamer,
    StreamerClosed,
    StreamerError,
    ThreadedStreamer,
    WorkerInitError,
    WorkerLost,
)
from service_streamer._base.errors import WorkerTraceback

NAN = float("nan")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("batch_size", value) for value in (0, -1, 8.0, 2.5, True, None, "8", 2**31, NAN)],
        *[("max_latency", value) for value in (-0.1, NAN, math.inf, -math.inf, None, "1", True)],
        *[("worker_timeout", value) for value in (-1, NAN, "20", False)],
        *[("policy", value) for value in ("fast", "Adaptive", "", None, 1, ["greedy"])],
        *[("overflow", value) for value in ("drop", "", None, 0)],
        *[("output", value) for value in ("list", "", None)],
        *[("max_queue", value) for value in (0, -5, 1.5, True, "10")],
        *[("isolate_errors", value) for value in (None, 0, "no")],
        *[("isolation_budget", value) for value in (-1, NAN, math.inf, None, "8", True)],
    ],
)
def test_a_wrong_setting_is_named_with_its_value(field, value):
    settings = {"batch_size": 8, field: value}
    with pytest.raises(ValueError, match=re.escape(field) + ".*" + re.escape(repr(value))):
        ThreadedStreamer(double, **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"batch_size": 1, "max_latency": 0},
        {"batch_size": 2**31 - 1, "max_latency": 1e9, "worker_timeout": 1e300},
        {"batch_size": 8, "worker_timeout": None},
        {"batch_size": 8, "worker_timeout": math.inf},
        {"batch_size": 8, "max_queue": 1},
    ],
)
def test_extreme_settings_work(settings):
    with ThreadedStreamer(double, **settings) as streamer:
        assert streamer.predict([1]) == [2]
        assert streamer.submit([1], timeout=math.inf).result() == [2]


def test_numbers_of_numpy_are_numbers():
    numpy = pytest.importorskip("numpy")
    with ThreadedStreamer(double, numpy.int64(8), numpy.float32(0.5)) as streamer:
        assert streamer.predict([1], timeout=numpy.float64(20)) == [2]
    with pytest.raises(ValueError, match="batch_size"):
        ThreadedStreamer(double, numpy.float64(8))


class HasPredict:
    def predict(self, batch):
        return batch


class Managed(ManagedModel):
    pass


@pytest.mark.parametrize("kind", [ThreadedStreamer, Streamer])
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (None, "NoneType"),
        ("predict", "str"),
        (3, "int"),
        (HasPredict(), r"HasPredict.*predict"),
        (Managed(), r"Managed.*predict"),
    ],
)
def test_a_model_that_cannot_be_called_is_refused(kind, function, message):
    with pytest.raises(TypeError, match=message):
        kind(function, 8)


@pytest.mark.parametrize("function", [double, functools.partial(double), HasPredict().predict])
def test_any_callable_will_do(function):
    with ThreadedStreamer(function, 8) as streamer:
        assert streamer.predict([1, 2]) == function([1, 2])
        assert "ThreadedStreamer" in repr(streamer)


BAD_BATCHES = [
    ("a string", "str"),
    (b"bytes", "bytes"),
    (bytearray(b"bytes"), "bytearray"),
    (5, "int"),
    (None, "NoneType"),
    ({"a": 1}, "dict"),
    (collections.UserDict({0: 1}), "UserDict"),
    ({1, 2}, "set"),
    ((x for x in [1]), "generator"),
    (iter([1]), "list_iterator"),
    (object(), "object"),
]


@pytest.mark.parametrize(("batch", "kind"), BAD_BATCHES, ids=[kind for _, kind in BAD_BATCHES])
@pytest.mark.parametrize("method", ["predict", "submit"])
def test_a_batch_that_is_no_sequence_is_named_by_its_type(streamers, method, batch, kind):
    streamer = streamers()
    with pytest.raises(TypeError, match=kind):
        getattr(streamer, method)(batch)
    assert streamer.predict([1]) == [2]
    assert streamer.stats().submitted == 1


def test_what_has_a_length_and_can_be_indexed_is_a_batch(streamers):
    assert streamers().predict(Indexed([1, 2])) == [2, 4]


def test_a_numpy_array_is_a_batch(streamers):
    numpy = pytest.importorskip("numpy")
    outputs = streamers().predict(numpy.arange(4).reshape(2, 2))
    assert [output.tolist() for output in outputs] == [[0, 2], [4, 6]]


@pytest.mark.torch
def test_a_tensor_is_a_batch(streamers, torch):
    outputs = streamers().predict(torch.ones(3, 4))
    assert [output.tolist() for output in outputs] == [[2.0] * 4] * 3
    with pytest.raises(TypeError, match=r"got the Tensor tensor\(1\.\): did you mean \[tensor"):
        streamers().predict(torch.tensor(1.0))


@pytest.mark.parametrize("method", ["predict", "submit"])
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"timeout": -1}, ValueError, "timeout.*-1"),
        ({"timeout": NAN}, ValueError, "timeout.*nan"),
        ({"timeout": "5"}, TypeError, "timeout.*str"),
        ({"priority": 1.5}, TypeError, "priority.*float"),
        ({"priority": "high"}, TypeError, "priority.*str"),
        ({"priority": None}, TypeError, "priority.*NoneType"),
        ({"priority": 2**40}, ValueError, "priority"),
    ],
)
def test_a_wrong_timeout_or_priority_is_named(streamers, method, options, error, message):
    streamer = streamers()
    with pytest.raises(error, match=message):
        getattr(streamer, method)([1], **options)
    assert streamer.stats().submitted == 0


def test_a_future_refuses_a_wrong_timeout(held, gate):
    future = held().submit([1])
    with pytest.raises(ValueError, match="timeout"):
        future.result(NAN)
    with pytest.raises(RequestTimeout):
        future.result(-1)  # over, as in concurrent.futures
    with pytest.raises(TypeError, match="timeout"):
        future.exception("soon")
    gate.open()
    assert future.result(1e300) == [2]


def test_a_sequence_that_raises_passes_its_error_on(streamers):
    class Broken:
        def __len__(self):
            return 2

        def __getitem__(self, index):
            raise RuntimeError("broken sequence")

    streamer = streamers()
    with pytest.raises(RuntimeError, match="broken sequence"):
        streamer.predict(Broken())
    assert streamer.predict([1]) == [2]


def test_a_dataset_without_an_end_is_as_long_as_it_says(streamers):
    class Dataset:
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return index

    assert streamers().predict(Dataset()) == [0, 2, 4]


def test_the_caller_may_change_its_list_afterwards(held, gate):
    batch = [1, 2]
    future = held().submit(batch)
    batch.clear()
    gate.open()
    assert future.result() == [2, 4]


def test_the_model_may_change_its_list(streamers):
    def predict(batch):
        outputs = double(batch)
        batch.clear()
        return outputs

    assert streamers(predict).predict([1, 2]) == [2, 4]


def test_a_streamer_cannot_be_pickled_and_says_what_to_do(streamers):
    streamer = streamers()
    hint = "address" if isinstance(streamer, Streamer) else "process"
    with pytest.raises(TypeError, match=f"{type(streamer).__name__}.*{hint}"):
        pickle.dumps(streamer)


def test_the_tree_of_errors():
    assert StreamerError.__bases__ == (Exception,)
    for error in (QueueFull, RequestTimeout, StreamerClosed, WorkerLost, WorkerInitError):
        assert error.__bases__[0] is StreamerError
    for error in (OutputSizeMismatch, SerializationError):
        assert error.__bases__ == (StreamerError,)
    assert issubclass(RequestTimeout, TimeoutError)


def test_cancelled_and_timeout_are_those_of_concurrent_futures():
    import concurrent.futures

    assert CancelledError is concurrent.futures.CancelledError
    assert issubclass(RequestTimeout, concurrent.futures.TimeoutError)


def equal(error, other):
    return (type(error), str(error), error.args, vars(error)) == (
        type(other),
        str(other),
        other.args,
        vars(other),
    )


@pytest.mark.parametrize(
    "error",
    [
        QueueFull("no room", 0.25),
        OutputSizeMismatch(3, 2),
        OutputSizeMismatch(1, None, "NoneType has no length"),
        RequestTimeout("late"),
        StreamerClosed("closed"),
        WorkerLost("lost"),
        WorkerInitError("init"),
        SerializationError("pickle"),
        WorkerTraceback("Traceback ..."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickle_and_copy(error):
    assert equal(pickle.loads(pickle.dumps(error)), error)
    assert equal(copy.copy(error), error)


@pytest.mark.parametrize("method", ["predict", "submit"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_len_that_raises_passes_its_error_on(streamers, method, error):
    class Broken:
        def __len__(self):
            raise error("in len")

        def __getitem__(self, index):
            raise IndexError

    streamer = streamers()
    with pytest.raises(error, match="in len"):
        getattr(streamer, method)(Broken())
    assert streamer.predict([1]) == [2]
