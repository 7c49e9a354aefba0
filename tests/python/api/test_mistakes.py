"""The first mistakes of a user: the whole message, with the value, the remedy and the page."""

import asyncio
import functools
import pickle
import re
import threading
import types

import pytest
from step_models import Countdown
from thread_models import double
from told import told

from service_streamer import (
    ManagedModel,
    OutputSizeMismatch,
    Pipeline,
    RedisStreamer,
    SerializationError,
    Stage,
    Streamer,
    StreamerClosed,
    ThreadedStreamer,
)
from service_streamer.hub import ModelHub, ModelSpec


def run(predict, batch=(1, 2)):
    with ThreadedStreamer(predict, 8) as streamer:
        return streamer.predict(batch)


async def is_async(batch):
    return batch


def yields_outputs(batch):
    yield from batch


def asks_itself(batch):
    return asking.predict(batch)


asking = ThreadedStreamer(asks_itself, 8)


class Loaded(ManagedModel):
    def predict(self, batch):
        return batch


def after_its_block(use):
    with ThreadedStreamer(double, 8) as streamer:
        pass
    use(streamer)


GIVEN_2 = "predict_function was given 2 items and"
ONE_EACH = "return one output per item, in their order"
NO_BATCH = "batch must be a sequence of items, got the"
NO_SEQUENCE = "predict_function must return a sequence with one output per item, got the"
CLOSED = "is closed: create a new one, and let its `with` block end after the last request"

MISTAKES = [
    (
        lambda: run(lambda batch: (item for item in batch)),
        OutputSizeMismatch,
        f"{GIVEN_2} its output cannot be counted (generator has no length): return a list, such as "
        "list(outputs)",
        "outputsizemismatch",
    ),
    (
        lambda: run(lambda batch: None),
        OutputSizeMismatch,
        f"{GIVEN_2} its output cannot be counted (NoneType has no length): return the outputs: is "
        "a return statement missing?",
        "outputsizemismatch",
    ),
    (
        lambda: run(lambda batch: batch[:1]),
        OutputSizeMismatch,
        f"{GIVEN_2} returned 1 output (of type list): {ONE_EACH}",
        "outputsizemismatch",
    ),
    (
        lambda: run(lambda batch: (batch, "attention", "hidden")),
        OutputSizeMismatch,
        f"{GIVEN_2} returned 3 outputs (of type tuple): {ONE_EACH}",
        "outputsizemismatch",
    ),
    (
        lambda: run(lambda batch: {"label": 1, "score": 2}),
        TypeError,
        f"{NO_SEQUENCE} dict {{'label': 1, 'score': 2}}: return a list of rows, such as "
        "[dict(zip(outputs, row)) for row in zip(*outputs.values())]",
        "outputs-that-are-no-sequence",
    ),
    (
        lambda: run(yields_outputs),
        ValueError,
        "predict_function is a generator function, so it must yield a sequence with one piece per "
        "item, got the int 1: to return outputs, use return in place of yield",
        "a-generator-function",
    ),
    (
        lambda: run(double, {"text": "a"}),
        TypeError,
        f"{NO_BATCH} dict {{'text': 'a'}}: pass a list with one dict for each item, such as "
        "[dict(zip(batch, row)) for row in zip(*batch.values())]",
        "a-batch-that-is-no-sequence",
    ),
    (
        lambda: run(double, {1}),
        TypeError,
        f"{NO_BATCH} set {{1}}: it cannot be indexed, so pass list(...)",
        "a-batch-that-is-no-sequence",
    ),
    (
        lambda: run(double, 1),
        TypeError,
        f"{NO_BATCH} int 1: did you mean [1]?",
        "a-batch-that-is-no-sequence",
    ),
    (
        lambda: run(double, "x" * 1000),
        TypeError,
        f"{NO_BATCH} str '{'x' * 27}...{'x' * 28}': did you mean ['{'x' * 27}...{'x' * 28}']?",
        "a-batch-that-is-no-sequence",
    ),
    (
        lambda: run(double, 10**5000),
        TypeError,
        f"{NO_BATCH} int <int>: did you mean [<int>]?",
        "a-batch-that-is-no-sequence",
    ),
    (
        lambda: run(double, range(3).__iter__()),
        TypeError,
        f"{NO_BATCH} range_iterator <range_iterator object at ADDRESS>: it has no length, so pass "
        "list(...) or use map(...)",
        "a-batch-that-is-no-sequence",
    ),
    (
        lambda: asking.predict([1]),
        RuntimeError,
        "this thread runs predict_function (or a done callback) of the streamer that it asks, so "
        "it would wait for itself: call the model directly, or use submit() and "
        "add_done_callback()",
        "predict-inside-predict_function",
    ),
    (
        lambda: after_its_block(lambda streamer: streamer.predict([1])),
        StreamerClosed,
        f"the streamer {CLOSED}",
        "streamerclosed",
    ),
    (
        lambda: after_its_block(lambda streamer: asyncio.run(streamer.apredict([1]))),
        StreamerClosed,
        f"the streamer {CLOSED}",
        "streamerclosed",
    ),
    (
        lambda: after_its_block(lambda streamer: streamer.wait_ready()),
        StreamerClosed,
        f"ThreadedStreamer(double) {CLOSED}",
        "streamerclosed",
    ),
    (
        lambda: Streamer(is_async, 8),
        TypeError,
        "predict_function_or_model must be an ordinary function, but is_async is async: callers "
        "can await `apredict` of any streamer, and a ThreadedStreamer also runs async functions",
        "a-model-that-cannot-be-called",
    ),
    (
        lambda: ThreadedStreamer(types.SimpleNamespace(predict=double), 8),
        TypeError,
        "predict_function must be callable, not the SimpleNamespace namespace(predict=<function "
        "double at ADDRESS>): pass its predict method",
        "a-model-that-cannot-be-called",
    ),
    (
        lambda: ThreadedStreamer(Loaded, 8),
        TypeError,
        "predict_function must be a function, not the class Loaded: create and initialise a "
        "model and pass its predict method, or use Streamer, whose workers do that",
        "a-model-that-cannot-be-called",
    ),
    (
        lambda: Streamer(Countdown(), 8),
        TypeError,
        "worker processes load a StepModel themselves: pass the class Countdown, not an instance",
        "a-model-that-cannot-be-called",
    ),
    (
        lambda: pickle.dumps(ThreadedStreamer(double, 8)),
        TypeError,
        "a ThreadedStreamer cannot be pickled: create one in each process, or create one "
        "before forking",
        "a-streamer-that-is-pickled",
    ),
    (
        lambda: pickle.dumps(ModelHub({})),
        TypeError,
        "a ModelHub cannot be pickled: create one in each process",
        "a-streamer-that-is-pickled",
    ),
    *(
        (make, TypeError, text, "an-option-of-another-streamer")
        for make, text in [
            (
                lambda: ThreadedStreamer(double, 8, mp_start_method="fork"),
                "ThreadedStreamer has no option mp_start_method='fork': it is an option of "
                "Streamer, RedisWorker",
            ),
            (
                lambda: Streamer(double, 8, max_batch_size=8),
                "Streamer has no option max_batch_size=8: did you mean batch_size?",
            ),
            (
                lambda: Streamer.connect("@nobody", worker_num=2),
                "Streamer.connect has no option worker_num=2: it is an option of "
                "ThreadedStreamer, Streamer, RedisWorker",
            ),
            (
                lambda: Pipeline(Stage(double), batch_size=8),
                "Pipeline has no option batch_size=8: it is an option of Stage",
            ),
            (
                lambda: Pipeline(Stage(double), redis_broker="localhost:6379"),
                "Pipeline has no option redis_broker='localhost:6379': it is an option of "
                "RedisStreamer, RedisWorker",
            ),
            (
                lambda: Pipeline(Stage(double), owner=8),
                "Pipeline has no option owner=8: its options are worker_timeout, max_in_flight, "
                "max_queue, overflow, tenants, max_queue_per_tenant",
            ),
            (
                lambda: ModelSpec(double, batch_size=8, cuda_devices=(0,)),
                "ModelSpec has no option cuda_devices=(0,): it is an option of Streamer, "
                "RedisWorker",
            ),
        ]
    ),
    *(
        (make, error, text, "a-wrong-value-of-an-option")
        for make, error, text in [
            (
                lambda: ThreadedStreamer(double, "64"),
                ValueError,
                "batch_size must be an int of at least 1, not '64'",
            ),
            (
                lambda: ThreadedStreamer(double, 8, policy="adpative"),
                ValueError,
                "policy must be one of 'adaptive', 'greedy', 'window', not 'adpative'",
            ),
            (
                lambda: ThreadedStreamer(double, 8, max_weight=100),
                ValueError,
                "max_weight=100 needs weight",
            ),
            (
                lambda: Streamer(double, 8, cuda_devices=0),
                TypeError,
                "cuda_devices must be a sequence such as (0, 1), not 0",
            ),
            (
                lambda: Streamer(double, 8, worker_hang_timeout=0),
                ValueError,
                "worker_hang_timeout must be more than 0 seconds, or None, not 0.0",
            ),
            (
                lambda: ModelHub({}, memory_budget="much"),
                ValueError,
                "memory_budget must be a number of bytes, or a str such as \"12GB\", not 'much'",
            ),
        ]
    ),
]


@pytest.mark.parametrize(("mistake", "error", "text", "anchor"), MISTAKES)
def test_a_mistake_is_reported_with_its_value_its_remedy_and_the_page(mistake, error, text, anchor):
    with pytest.raises(error) as raised:
        mistake()
    assert without_addresses(str(raised.value)) == told(text, anchor)


def without_addresses(text):
    return re.sub("0x[0-9a-f]+", "ADDRESS", text)


def test_a_client_of_redis_takes_no_model():
    pytest.importorskip("redis")
    with pytest.raises(TypeError) as raised:
        RedisStreamer(double, 8)
    assert str(raised.value) == told(
        "a RedisStreamer runs no model, but got double: give the model to a RedisWorker, and here "
        "only the broker and the prefix",
        "an-option-of-another-streamer",
    )


# ------------------------------------------------------------------ a model that does not pickle


class Net:
    def __init__(self):
        self.weights = {"first": [1, 2], "lock": threading.Lock()}

    def predict(self, batch):
        return batch


class Ring:
    """Two objects that refer to each other; the lock comes last."""

    def __init__(self):
        self.me = self
        self.other = types.SimpleNamespace(ring=self)
        self.lock = threading.Lock()

    def predict(self, batch):
        return batch


def with_an_unbound_variable(lock):
    def predict(batch):
        return [lock, unbound]

    if lock is None:
        unbound = 1
    return predict


class Raising(Net):
    """Raises where the message is prepared."""

    @property
    def __dict__(self):
        raise RuntimeError("dictionary changed size during iteration")


class Managed(ManagedModel):
    def init_model(self, net):
        self.net = net


@pytest.mark.parametrize(
    ("make", "what", "guilty"),
    [
        (lambda: Streamer(Net().predict, 8), "Net.predict", "Net.weights['lock']"),
        (
            lambda: Streamer(functools.partial(Net.predict, Net()), 8),
            "Net.predict",
            "args[0].weights['lock']",
        ),
        (
            lambda: Streamer(Managed, 8, model_init_args=[Net()]),
            "Managed",
            "model_init_args[0].weights['lock']",
        ),
        (lambda: Streamer(Ring().predict, 8), "Ring.predict", "Ring.lock"),
        (
            lambda: Streamer(with_an_unbound_variable(threading.Lock()), 8),
            "with_an_unbound_variable.<locals>.predict",
            "lock",
        ),
    ],
)
def test_what_does_not_pickle_is_named_with_its_path(make, what, guilty):
    pytest.importorskip("cloudpickle")
    with pytest.raises(SerializationError) as raised:
        make()
    assert str(raised.value) == told(
        f"{what} cannot be sent to a worker process, because {guilty} (_thread.lock) cannot be "
        "pickled (TypeError: cannot pickle '_thread.lock' object): create what it refers to in "
        '`init_model` of a ManagedModel, in the worker, or use mp_start_method="fork"',
        "a-model-that-does-not-pickle",
    )


def test_a_model_that_cannot_be_looked_through_is_reported_without_the_path():
    pytest.importorskip("cloudpickle")
    with pytest.raises(SerializationError, match=r"Net\.predict cannot be sent .* process \("):
        Streamer(Raising().predict, 8)


class Service:
    def __init__(self, streamer):
        self.streamer = streamer

    def predict(self, batch):
        return self.streamer.predict(batch)


def test_a_model_that_has_a_streamer_is_reported_with_one_address():
    pytest.importorskip("cloudpickle")
    with ThreadedStreamer(double, 8) as streamer, pytest.raises(SerializationError) as raised:
        Streamer(Service(streamer).predict, 8)
    message, _, page = str(raised.value).rpartition("\n")
    assert page == told("", "a-model-that-does-not-pickle").strip()
    assert "\n" not in message
    assert "(TypeError: a ThreadedStreamer cannot be pickled: create one in each" in message
