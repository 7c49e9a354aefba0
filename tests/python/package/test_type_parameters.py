"""Type parameters at run time, and the types of options. tests/typing has what checkers see."""

import inspect
import typing

import pytest
from waits import LONG

from service_streamer import (
    AsyncStream,
    Future,
    ManagedModel,
    RayStreamer,
    RedisStreamer,
    StepModel,
    Stream,
    Streamer,
    ThreadedStreamer,
)
from service_streamer._base.types import ProcessesOptions, RayOptions, ThreadedOptions

pytestmark = pytest.mark.every_python

T = typing.TypeVar("T")
CLASSES = [ThreadedStreamer, Streamer, RedisStreamer, RayStreamer, ManagedModel, StepModel, Future]


class Length(ManagedModel[str, int]):
    def init_model(self):
        pass

    def predict(self, batch):
        return [len(text) for text in batch]


class Echo(ManagedModel[T, T], typing.Generic[T]):
    def init_model(self):
        pass

    def predict(self, batch):
        return batch


@pytest.mark.parametrize("cls", [*CLASSES, Stream, AsyncStream], ids=lambda cls: cls.__name__)
def test_a_class_takes_type_parameters(cls):
    # Those with a default may be left out, which typing allows only from Python 3.13 on.
    assert typing.get_origin(cls[str]) is cls
    assert typing.get_args(cls[str, list[int]]) == (str, list[int])


def test_a_streamer_with_type_parameters_is_one_without():
    with ThreadedStreamer[str, list[int]](lambda batch: [len(text) for text in batch], 8) as made:
        assert type(made) is ThreadedStreamer
        assert made.predict(["a", "bc"]) == [1, 2]


def test_a_model_with_type_parameters_runs_in_a_worker(process_streamers):
    assert process_streamers(Length).predict(["a", "bc"]) == [1, 2]
    first = process_streamers(Echo[int])
    assert first.predict([3]) == [3]
    with Streamer[int, list[int]].connect(first.address) as client:
        assert type(client) is Streamer
        assert client.predict([4], timeout=LONG) == [4]


def test_a_model_class_with_type_parameters_is_still_no_function():
    with pytest.raises(TypeError, match="must be a function, not the class Echo"):
        ThreadedStreamer(Echo[int], 8)


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (ThreadedStreamer, ThreadedOptions),
        (Streamer, ProcessesOptions),
        (RayStreamer, RayOptions),
    ],
)
def test_each_option_has_a_type(cls, options):
    parameters = inspect.signature(cls).parameters.values()
    named = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    named = {name for name in named if not name.startswith("_")}
    assert named - {"output", "options"} == options.__annotations__.keys()
    declared = {name: each.__forward_arg__ for name, each in options.__annotations__.items()}
    assert {each.name: each.annotation for each in parameters if each.name in declared} == declared


# Of all that form batches: in the order of the signatures, with the defaults.
OF_BATCHES = {
    "policy": "adaptive",
    "ageing": None,
    "key": None,
    "weight": None,
    "max_weight": None,
    "padded": False,
    "strict_weight": False,
    "bucket": None,
    "max_queue": None,
    "max_queue_weight": None,
    "tenants": None,
    "max_queue_per_tenant": None,
    "overflow": "block",
    "slo": None,
    "output": "items",
    "copy_outputs": True,
    "isolate_errors": True,
    "isolation_budget": 8,
}


@pytest.mark.parametrize(
    ("cls", "before", "without"),
    [
        (ThreadedStreamer, "worker_timeout", ()),
        (Streamer, "worker_timeout", ("copy_outputs",)),
        (RayStreamer, "worker_hang_timeout", ("copy_outputs",)),
    ],
)
def test_a_signature_lists_the_options_of_batches(cls, before, without):
    shown = inspect.signature(cls).parameters
    at = [*shown].index(before) + 1
    expected = [(name, OF_BATCHES[name]) for name in OF_BATCHES if name not in without]
    listed = [(each.name, each.default) for each in shown.values()]
    assert listed[at : at + len(expected)] == expected
    assert all(each.kind is not each.VAR_KEYWORD for each in shown.values())
