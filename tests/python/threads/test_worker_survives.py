"""What goes wrong around the model ends neither the worker nor the wait of a caller."""

import logging
import threading
import weakref

import pytest
from free_threading import freed_at_once
from waits import LONG, eventually

from service_streamer import QueueFull, WorkerLost
from service_streamer._waiting.threads import NativeThread


@pytest.fixture
def logger():
    logger = logging.getLogger("service_streamer")
    level = logger.level
    logger.setLevel(logging.DEBUG)
    yield logger
    logger.setLevel(level)


class Raising(logging.Handler):
    """A handler, and a filter, that raises."""

    def __init__(self, error):
        super().__init__()
        self.error = error
        self.called = threading.Semaphore(0)

    def handle(self, record):
        self.called.release()
        raise self.error("from logging")

    def filter(self, record):
        self.called.release()
        raise self.error("from logging")


@pytest.mark.in_process
@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("kind", ["Handler", "Filter"])
def test_logging_that_raises_does_not_end_the_worker(streamers, threads, logger, kind, error):
    raising = Raising(error)
    getattr(logger, f"add{kind}")(raising)
    try:
        streamer = streamers()
        for i in range(3):
            assert streamer.predict([i], timeout=LONG) == [2 * i]
            assert raising.called.acquire(timeout=LONG)
        threads.run(streamer.close)
        assert threads.join() == [None]
    finally:
        getattr(logger, f"remove{kind}")(raising)


@pytest.mark.in_process
def test_a_logger_that_cannot_say_whether_it_logs_does_not(streamers, logger, monkeypatch):
    def no_answer(level):
        raise ValueError(level)

    monkeypatch.setattr(logger, "isEnabledFor", no_answer)
    streamer = streamers()
    for i in range(3):
        assert streamer.predict([i], timeout=LONG) == [2 * i]


@pytest.mark.in_process
def test_no_caller_waits_for_a_thread_that_could_not_be_started(streamers, threads, monkeypatch):
    starting = threading.Event()

    def no_thread(self):
        starting.set()
        eventually(lambda: streamer.stats().queued_requests == 3)
        raise RuntimeError("can't start new thread")

    streamer = streamers(worker_timeout=None)
    with monkeypatch.context() as patch:
        patch.setattr(NativeThread, "start", no_thread)
        threads.run(streamer.predict, [0])
        assert starting.wait(LONG)
        futures = [streamer.submit([1])]
        for i in (2, 3):
            threads.run(streamer.predict, [i])
        first, *others = threads.join()
    assert isinstance(first, RuntimeError)
    assert [type(error) for error in [*others, futures[0].exception(LONG)]] == [WorkerLost] * 3
    assert streamer.predict([1], timeout=LONG) == [2]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_output_whose_len_raises_leaves_no_caller_waiting(held, gate, error):
    class Broken:
        def __len__(self):
            raise error("in len")

    gate._predict = lambda batch: Broken() if "broken" in batch else batch
    streamer = held()
    broken = streamer.submit(["broken"])
    gate.open()
    assert isinstance(broken.exception(LONG), WorkerLost if error is KeyboardInterrupt else error)
    assert "in __len__" in str(broken.exception().__cause__)
    assert streamer.predict([1], timeout=LONG) == [1]


class Output:
    pass


@pytest.mark.in_process
@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_batch_that_runs_again_finds_the_memory_free_that_it_had_taken(held, gate, error):
    activations = []
    gone = []

    def run_out_of_memory():
        activation = Output()
        activations.append(weakref.ref(activation))
        raise RuntimeError("no memory")

    def predict(batch):
        gone.extend(activation() is None for activation in activations)
        if 2 in batch:
            try:
                run_out_of_memory()
            except RuntimeError as why:
                raise error("in the model") from why
        return batch

    gate._predict = predict
    streamer = held()
    futures = [streamer.submit([i]) for i in range(4)]
    gate.open()
    for i, future in enumerate(futures):
        assert (future.exception(LONG) is None) == (i != 2)
    assert gone
    assert all(gone)


@freed_at_once
@pytest.mark.in_process
@pytest.mark.parametrize("output", ["items", "batch"])
@pytest.mark.parametrize("batch_size", [2, 4])
def test_unwanted_outputs_are_freed_although_the_future_is_kept(held, gate, output, batch_size):
    outputs = []

    def predict(batch):
        made = [Output() for _ in batch]
        outputs.extend(weakref.ref(item) for item in made)
        if 4 in batch:
            future._abandon()  # while its last part is in the model
        return made

    gate._predict = lambda batch: batch if batch == ["first"] else predict(batch)
    streamer = held(batch_size=batch_size, output=output)
    future = streamer.submit([1, 2, 3, 4])
    gate.open()
    streamer.first.result(LONG)
    eventually(lambda: len(outputs) == 4 and all(item() is None for item in outputs))
    assert future.cancelled()


@freed_at_once
@pytest.mark.in_process
def test_late_outputs_are_freed_although_the_future_is_kept(held, gate):
    outputs = []

    def predict(batch):
        made = [Output() for _ in batch]
        outputs.extend(weakref.ref(item) for item in made)
        eventually(lambda: futures[-1].done())
        return made

    gate._predict = lambda batch: batch if batch == ["first"] else predict(batch)
    streamer = held()
    futures = [streamer.submit([1]), streamer.submit([2], timeout=0.5)]
    gate.open()
    futures[0].result(LONG)
    del futures[0]
    eventually(lambda: all(item() is None for item in outputs))
    assert futures[0].done()


def test_retry_after_is_positive_before_the_first_batch_has_ended(held):
    streamer = held(max_queue=1, overflow="reject")
    streamer.submit([1])
    with pytest.raises(QueueFull) as info:
        streamer.submit([2])
    assert info.value.retry_after > 0
