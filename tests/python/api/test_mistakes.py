"""The first mistakes of a user: the whole message, with the value, the remedy and the page."""

import asyncio
import functools
import logging
import threading
import types
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
from process_models import double as process_double
from thread_models import double
from waits import eventually

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
    _cores,
    batched,
)
from service_streamer._messages import PAGE
from service_streamer._waiting import coroutines
from service_streamer.hub import ModelSpec


def told(text, anchor):
    return f"{text} (see {PAGE}#{anchor})"


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
        f"{NO_SEQUENCE} dict {{'label': 1, 'score': 2}}: return a list",
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
        f"{NO_BATCH} dict {{'text': 'a'}}: did you mean [{{'text': 'a'}}]?",
        "a-batch-that-is-no-sequence",
    ),
    (
        lambda: run(double, "x" * 1000),
        TypeError,
        f"{NO_BATCH} str '{'x' * 27}...{'x' * 28}': did you mean ['{'x' * 27}...{'x' * 28}']?",
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
        lambda: ThreadedStreamer(is_async, 8),
        TypeError,
        "predict_function must be an ordinary function, but is_async is async: callers can await "
        "`apredict`, and the model runs in a thread",
        "a-model-that-cannot-be-called",
    ),
    (
        lambda: ThreadedStreamer(types.SimpleNamespace(predict=double), 8),
        TypeError,
        "predict_function must be callable, not the SimpleNamespace namespace(predict=<function "
        "double at ADDRESS>): pass its predict method",
        "a-model-that-cannot-be-called",
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
                lambda: Pipeline(Stage(double), zzz=8),
                "Pipeline has no option zzz=8: its options are worker_timeout, max_in_flight, "
                "max_queue, overflow, tenants, max_queue_per_tenant",
            ),
            (
                lambda: ModelSpec(double, batch_size=8, cuda_devices=(0,)),
                "ModelSpec has no option cuda_devices=(0,): it is an option of Streamer, "
                "RedisWorker",
            ),
        ]
    ),
]


@pytest.mark.parametrize(("mistake", "error", "text", "anchor"), MISTAKES)
def test_a_mistake_is_told_with_its_value_its_remedy_and_the_page(mistake, error, text, anchor):
    with pytest.raises(error) as raised:
        mistake()
    assert without_addresses(str(raised.value)) == told(text, anchor)


def without_addresses(text):
    words = text.split(" ")
    return " ".join("ADDRESS" + word[14:] if word.startswith("0x") else word for word in words)


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


# ------------------------------------------------------------------------- CUDA before a fork


SIMULATED = """
    import os, re, sys, types

    torch = sys.modules["torch"] = types.ModuleType("torch")
    torch.cuda = types.ModuleType("torch.cuda")
    parent = os.getpid()
    torch.cuda.is_initialized = lambda: os.getpid() == parent

    from service_streamer import ManagedModel, Streamer, ThreadedStreamer

    def needs_cuda(batch):
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")

    class Loads(ManagedModel):
        def init_model(self):
            needs_cuda([])

    def tell(use):
        try:
            use()
        except Exception as error:
            text = error.__cause__ if type(error) is RuntimeError else error
            text = str(text).replace(f"process {parent}", "process PARENT")
            print(re.sub(r"process \\d+", "process CHILD", text))

    def forked(model):
        with Streamer(model, 8, mp_start_method="fork") as streamer:
            tell(lambda: streamer.predict([1]))
"""
UNUSABLE = told(
    "process PARENT had initialised CUDA when process CHILD was forked from it: use "
    'mp_start_method="spawn", or load the model after the fork',
    "cuda-before-a-fork",
)


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (
            'tell(lambda: Streamer(Loads, 8, cuda_devices=(1,), mp_start_method="fork"))',
            told(
                'cuda_devices=(1,) with mp_start_method="fork": this process has initialised CUDA, '
                'so forked workers cannot use it: use "spawn", or create the workers before CUDA '
                "is used",
                "cuda-before-a-fork",
            ),
        ),
        ("forked(needs_cuda)", UNUSABLE),
        ("forked(Loads)", UNUSABLE),
        (
            "streamer = ThreadedStreamer(needs_cuda, 8)\n"
            "    if os.fork() == 0: tell(lambda: streamer.predict([1]))\n"
            "    else: os.wait()",
            UNUSABLE,
        ),
    ],
    ids=["devices", "at a request", "at the load", "threads"],
)
def test_cuda_before_a_fork_is_told(program, use, text):
    assert text in program(SIMULATED + "\n    " + use).stdout


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
        (lambda streamer: streamer.submit([1]).result(), coroutines.FOR_PREDICT),
        (lambda streamer: list(streamer.stream(1)), coroutines.FOR_STREAM),
    ],
)
def test_a_coroutine_that_blocks_its_loop_is_told_once(held, gate, ask, remedy):
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
def test_what_may_block_beside_a_loop_is_not_told(streamers):
    streamer = streamers()
    module = compile("streamer.predict([1])", "imported.py", "exec")

    async def correct():
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


# --------------------------------------------------------------------------------- no batches


@pytest.mark.parametrize(
    ("kind", "model"),
    [(ThreadedStreamer, double), (Streamer, process_double), (Streamer, Managed)],
)
def test_a_batch_size_of_1_is_told(kind, model):
    options = {"mp_start_method": "fork"} if kind is Streamer else {}
    with pytest.warns(UserWarning, match="batch_size=1") as seen:
        kind(model, batch_size=1, **options).close()
    (warning,) = seen
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
               "most worker_num=1, or torch.set_num_threads(1) in each worker"),
        (2, 1, None),
        (1, 8, None),
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


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("is_torch", [True, False])
def test_threads_of_a_torch_model_are_told_at_the_first_request(
    torch_of_4_threads, caplog, is_torch
):
    network = torch_of_4_threads.nn.Module() if is_torch else types.SimpleNamespace(predict=double)
    with ThreadedStreamer(lambda batch: network.predict(batch), 8, worker_num=2) as streamer:
        assert caplog.records == []
        assert streamer.predict([1]) == streamer.predict([1]) == [2]
    told_of = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(told_of) == is_torch
    for record in told_of:
        assert record.message == _cores.complaint(2, 4)
        assert (record.workers, record.threads) == (2, 4)
