"""Type parameters at run time, and the types of options. tests/typing has what checkers see."""

import inspect
import re
import typing
from pathlib import Path

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
SIGNATURES = Path(__file__).parent / "signatures.txt"
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


@pytest.mark.parametrize("cls", [ThreadedStreamer, Streamer, RayStreamer])
def test_a_signature_lists_each_option_in_its_place(cls):
    sections = re.findall(r"^(\w+)\n((?:    .*\n)+)", SIGNATURES.read_text(), re.MULTILINE)
    shown = [
        f"{each.name}: {each.annotation}"
        + ("" if each.default is each.empty else f" = {each.default!r}")
        for each in inspect.signature(cls).parameters.values()
    ]
    assert shown == [line.strip() for line in dict(sections)[cls.__name__].splitlines()]
