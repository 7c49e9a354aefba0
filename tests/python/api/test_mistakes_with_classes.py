"""Mistakes with classes, methods and objects: the whole message, with the remedy and the page."""

import pickle

import pytest
from step_models import Countdown
from thread_models import double
from told import told

from service_streamer import (
    ManagedModel,
    SerializationError,
    Streamer,
    ThreadedStreamer,
)
from service_streamer.hub import ModelHub


class Managed(ManagedModel):
    def predict(self, batch):
        return batch


class Service:
    def __init__(self, streamer):
        self.streamer = streamer

    def predict(self, batch):
        return self.streamer.predict(batch)


NO_MODEL = "a-model-that-cannot-be-called"
PICKLED = "a-streamer-that-is-pickled"


@pytest.mark.parametrize(
    ("mistake", "error", "text", "anchor"),
    [
        (
            lambda: ThreadedStreamer(Managed, 8),
            TypeError,
            "predict_function must be a function, not the class Managed: create and initialise a "
            "model and pass its predict method, or use Streamer, whose workers do that",
            NO_MODEL,
        ),
        (
            lambda: Streamer(Countdown(), 8),
            TypeError,
            "worker processes load a StepModel themselves: pass the class Countdown, not an "
            "instance",
            NO_MODEL,
        ),
        (
            lambda: pickle.dumps(ThreadedStreamer(double, 8)),
            TypeError,
            "a ThreadedStreamer cannot be pickled: create one in each process, or create one "
            "before forking",
            PICKLED,
        ),
        (
            lambda: pickle.dumps(ModelHub({})),
            TypeError,
            "a ModelHub cannot be pickled: create one in each process",
            PICKLED,
        ),
    ],
)
def test_a_mistake_is_reported_with_its_remedy_and_the_page(mistake, error, text, anchor):
    with pytest.raises(error) as raised:
        mistake()
    assert str(raised.value) == told(text, anchor)


def test_a_model_that_has_a_streamer_is_reported_with_one_address():
    pytest.importorskip("cloudpickle")
    with ThreadedStreamer(double, 8) as streamer, pytest.raises(SerializationError) as raised:
        Streamer(Service(streamer).predict, 8)
    message, _, page = str(raised.value).rpartition("\n")
    assert page == told("", "a-model-that-does-not-pickle").strip()
    assert "\n" not in message
    assert "(TypeError: a ThreadedStreamer cannot be pickled: create one in each" in message
