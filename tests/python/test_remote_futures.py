"""Futures whose workers are processes: everything that those of a thread can do.

The workers here are threads of the test at the other end of real sockets; `test_processes` has the
real ones.
"""

import asyncio
import concurrent.futures
import functools
import gc
import io
import os
import threading
import weakref
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from conftest import Gate, double, eventually
from remote import LONG, RemoteEngine, make_engine

from service_streamer import (
    CancelledError,
    OutputSizeMismatch,
    QueueFull,
    RequestTimeout,
    SerializationError,
    StreamerClosed,
    WorkerInitError,
    WorkerLost,
    _callbacks,
    _core,
)
from service_streamer._errors import WorkerTraceback

LARGE = 100_000


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def remote():
    made = []

    def make(predict=double, **options):
        engine = RemoteEngine(predict, **options)
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def held(remote, gate):
    """A remote engine whose worker is busy until `gate.open()`."""

    def make(**options):
        engine = remote(gate, **options)
        engine.first = engine.submit([0])
        gate.wait_entered()
        return engine

    return make


# ----------------------------------------------------------------------- answers


def test_answers_come_back_in_the_order_of_the_items(remote):
    engine = remote()
    assert engine.predict([1, "a", (2,), [3]]) == [2, "aa", (2, 2), [3, 3]]
    assert engine.predict([]) == []
    assert engine.submit([5]).result() == [10]


@pytest.mark.parametrize("workers", [1, 3])
def test_a_request_larger_than_a_batch_is_joined_again(remote, workers):
    engine = remote(workers=workers)
    assert engine.predict(list(range(1000))) == [2 * i for i in range(1000)]


@pytest.mark.parametrize(
    "returned", [list, tuple, np.array, lambda items: (x for x in ()) if not items else Odd(items)]
)
def test_outputs_may_be_any_sequence(remote, returned):
    engine = remote(lambda batch: returned([2 * item for item in batch]))
    outputs = engine.predict([1, 2, 3])
    assert type(outputs) is list
    assert outputs == [2, 4, 6]


class Odd:
    def __init__(self, items):
        self._items = items

    def __len__(self):
        return len(self._items)

    def __getitem__(self, index):
        return self._items[index]


def test_the_rows_of_an_array_are_the_outputs(remote):
    engine = remote(lambda batch: np.array(batch)[:, None] * np.ones(4))
    first, second = engine.predict([1, 2])
    assert (first.tolist(), second.tolist()) == ([1.0] * 4, [2.0] * 4)
    first[:] = 7
    assert len(engine.predict(list(range(100)))) == 100


@pytest.mark.parametrize("size", [3, 100, LARGE])
def test_a_whole_slice_of_the_array_is_the_answer_of_output_batch(remote, size):
    engine = remote(lambda batch: np.array(batch)[:, None] * np.ones(size), output="batch")
    one, many = engine.predict([1]), engine.predict(list(range(20)))
    assert one.shape == (1, size)
    assert many.shape == (20, size)
    assert many[:, -1].tolist() == list(range(20))
    many[:] = 0


def test_callers_share_nothing_but_their_batch(held, gate):
    engine = held()
    array = np.arange(LARGE)
    futures = [engine.submit([array]) for _ in range(4)]
    gate.open()
    answers = [future.result()[0] for future in futures]
    answers[0][:] = -1
    assert all(np.array_equal(answer, 2 * np.arange(LARGE)) for answer in answers[1:])
    assert np.array_equal(array, np.arange(LARGE))


def test_an_answer_is_unpickled_once_and_by_who_asks(remote, threads):
    engine = remote(lambda batch: [Witness() for _ in batch])
    future = engine.submit([1])
    concurrent.futures.wait([future], LONG)
    for _ in range(8):
        threads.run(future.result)
    answers = threads.join()
    assert all(answer is answers[0] for answer in answers)
    assert future.result() is answers[0]

    unasked = engine.submit([1])
    eventually(unasked.done)
    before = list(Witness.threads)
    unasked.result()
    assert Witness.threads == [*before, threading.get_ident()]


class Witness:
    threads: ClassVar = []

    def __reduce__(self):
        return _witness, ()


def _witness():
    Witness.threads.append(threading.get_ident())
    return Witness()


# ------------------------------------------------------------------------- errors


class OwnError(Exception):
    def __init__(self, text, code):
        super().__init__(text, code)
        self.code = code


class AwkwardError(Exception):
    def __init__(self, needed):
        super().__init__(f"needed {needed}")


class LocalState(Exception):
    def __init__(self, lock):
        super().__init__("has a lock")
        self.lock = lock


def raising(error):
    def predict(batch):
        raise error

    return predict


def test_the_models_exception_arrives_as_itself_with_the_workers_traceback(remote):
    engine = remote(raising(OwnError("bad", 7)))
    with pytest.raises(OwnError) as caught:
        engine.predict([1])
    assert caught.value.args == ("bad", 7)
    assert caught.value.code == 7
    assert isinstance(caught.value.__cause__, WorkerTraceback)
    assert "in predict" in str(caught.value.__cause__)


@pytest.mark.parametrize("error", [AwkwardError(3), LocalState(threading.Lock())])
def test_an_exception_that_cannot_be_pickled_arrives_as_text(remote, error):
    engine = remote(raising(error))
    with pytest.raises(SerializationError, match=f"{type(error).__name__}: {error}") as caught:
        engine.predict([1])
    assert "in predict" in str(caught.value.__cause__)


def test_each_caller_gets_an_exception_of_his_own(remote, gate):
    engine = remote(Gate_then(gate, raising(OwnError("bad", 1))))
    first = engine.submit([0])
    gate.wait_entered()
    futures = [engine.submit([1]) for _ in range(3)]
    gate.open()
    errors = [future.exception() for future in (first, *futures)]
    assert len({id(error) for error in errors}) == 4
    assert {error.args for error in errors} == {("bad", 1)}


def Gate_then(gate, predict):
    def run(batch):
        gate(batch)
        return predict(batch)

    return run


def test_only_the_guilty_request_fails(held, gate, remote):
    engine = remote(Gate_then(gate, lambda batch: [10 // item for item in batch]))
    first = engine.submit([1])
    gate.wait_entered()
    futures = [engine.submit([item]) for item in (1, 2, 0, 5)]
    gate.open()
    assert first.result() == [10]
    assert [f.result() for f in futures if f is not futures[2]] == [[10], [5], [2]]
    assert isinstance(futures[2].exception(), ZeroDivisionError)


def test_a_batch_too_large_for_the_memory_is_answered_in_parts(remote):
    def predict(batch):
        if len(batch) > 2:
            raise MemoryError("too much")
        return np.array(batch) * 2

    engine = remote(predict)
    assert engine.predict(list(range(8))) == [2 * i for i in range(8)]
    assert engine.predict(list(range(30))) == [2 * i for i in range(30)]


def test_an_exception_as_an_output_fails_its_request_alone(held, gate):
    engine = held()
    gate._predict = lambda batch: [ValueError("odd") if item % 2 else item for item in batch]
    even, odd = engine.submit([2]), engine.submit([3])
    gate.open()
    assert even.result() == [2]
    with pytest.raises(ValueError, match="odd"):
        odd.result()


def test_a_wrong_number_of_outputs_is_told_with_both_numbers(remote):
    with pytest.raises(OutputSizeMismatch) as caught:
        remote(lambda batch: batch[1:]).predict([1, 2, 3])
    assert (caught.value.expected, caught.value.received) == (3, 2)


def test_an_output_that_cannot_be_pickled_fails_its_request_alone(held, gate):
    engine = held()
    gate._predict = lambda batch: [threading.Lock() if item == 3 else item for item in batch]
    good, bad = engine.submit([2]), engine.submit([1, 3])
    gate.open()
    assert good.result() == [2]
    with pytest.raises(SerializationError, match="lock"):
        bad.result()


class LoadsOnlyOnce:
    """Can be pickled anywhere, but unpickled only until `closed`."""

    closed = False

    def __reduce__(self):
        return _load, ()


def _load():
    if LoadsOnlyOnce.closed:
        raise ImportError("not here")
    return LoadsOnlyOnce()


def test_an_item_that_cannot_be_unpickled_fails_its_request_alone(held, gate, monkeypatch):
    engine = held()
    bad, good = engine.submit([1, LoadsOnlyOnce()]), engine.submit([2])
    monkeypatch.setattr(LoadsOnlyOnce, "closed", True)
    gate.open()
    assert good.result() == [4]
    with pytest.raises(SerializationError, match="in the worker: ImportError: not here") as caught:
        bad.result()
    assert "_load" in str(caught.value.__cause__)


def test_a_batch_of_which_nothing_can_be_unpickled_does_not_reach_the_model(
    held, gate, monkeypatch
):
    engine = held()
    bad = engine.submit([LoadsOnlyOnce()])
    monkeypatch.setattr(LoadsOnlyOnce, "closed", True)
    gate.open()
    assert isinstance(bad.exception(LONG), SerializationError)
    assert engine.predict([1]) == [2]
    assert gate.batches == [[0], [1]]


def test_an_answer_that_cannot_be_unpickled_is_an_error_each_time(remote, monkeypatch):
    engine = remote(lambda batch: [LoadsOnlyOnce() for _ in batch])
    future = engine.submit([1])
    eventually(future.done)
    monkeypatch.setattr(LoadsOnlyOnce, "closed", True)
    with pytest.raises(SerializationError, match="ImportError: not here"):
        future.result()
    monkeypatch.setattr(LoadsOnlyOnce, "closed", False)
    assert isinstance(future.exception(), SerializationError)


def test_an_item_that_cannot_be_pickled_is_refused_at_once(remote):
    engine = remote()
    with pytest.raises(SerializationError, match="item 1 of the request, of type function"):
        engine.submit([1, lambda: 0])
    assert engine.engine.stats()["submitted"] == 0


# --------------------------------------------------------------- ends of all kinds


def test_a_queued_request_can_be_cancelled_and_a_running_one_cannot(held, gate):
    engine = held()
    queued = engine.submit([1])
    assert not queued.running()
    assert engine.first.running()
    assert queued.cancel()
    assert queued.cancelled()
    assert not engine.first.cancel()
    gate.open()
    assert engine.first.result() == [0]
    with pytest.raises(CancelledError):
        queued.result()


def test_deadlines_pass_without_anybody_waiting(held, gate):
    engine = held()
    queued = engine.submit([1], 0.02)
    eventually(queued.done)
    with pytest.raises(RequestTimeout):
        queued.result()
    with pytest.raises(RequestTimeout):
        engine.predict([2], 0.02)
    gate.open()
    assert engine.first.result() == [0]
    assert gate.batches == [[0]]


def test_the_wait_for_a_result_ends_by_itself(held, gate):
    engine = held()
    with pytest.raises(RequestTimeout, match=r"timeout=0\.01"):
        engine.first.result(0.01)
    gate.open()
    assert engine.first.result(LONG) == [0]


def test_a_full_queue_rejects_or_blocks(remote, gate, threads):
    engine = remote(gate, max_queue=2, overflow="reject")
    engine.submit([0])
    gate.wait_entered()
    engine.submit([1, 2])
    with pytest.raises(QueueFull):
        engine.submit([3])

    engine = remote(gate, max_queue=2)
    engine.submit([0])
    gate.wait_entered()
    engine.submit([1, 2])
    with pytest.raises(RequestTimeout):
        engine.submit([3], 0.02)
    threads.run(lambda: engine.submit([4]).result(LONG))
    eventually(lambda: engine.engine.stats()["waiting_requests"] == 1)
    gate.open()
    assert threads.join() == [[8]]


@pytest.mark.parametrize("retries", [0, 1])
def test_a_worker_that_is_gone_loses_its_batch_or_has_it_run_again(remote, gate, retries):
    engine = remote(gate, workers=1, retries=retries)
    future = engine.submit([1])
    gate.wait_entered()
    engine.cut_off()
    if retries == 0:
        assert isinstance(future.exception(LONG), WorkerLost)
    else:
        eventually(lambda: engine.server.next_event(0.0) is not None)
        gate.open()
        engine.add_worker()
        assert future.result(LONG) == [2]
    gate.open()


def test_when_no_worker_will_come_everybody_is_told_why(held, gate):
    engine = held()
    queued = engine.submit([1])
    engine.server.set_failure("init: Traceback ... no such model")
    with pytest.raises(WorkerInitError, match=r"^Traceback .* no such model$"):
        queued.result(LONG)
    with pytest.raises(WorkerInitError):
        engine.predict([2])
    engine.server.set_failure("all workers crash")
    with pytest.raises(WorkerLost, match=r"^all workers crash$"):
        engine.predict([2])
    gate.open()


def test_closing_ends_what_is_queued(held, gate):
    engine = held()
    queued = engine.submit([1])
    engine.engine.close(False)
    with pytest.raises(StreamerClosed):
        queued.result(LONG)
    with pytest.raises(StreamerClosed):
        engine.submit([2])
    with pytest.raises(StreamerClosed):
        engine.submit([lambda: 0])
    gate.open()
    assert engine.first.result(LONG) == [0]


def test_a_forgotten_request_is_answered_all_the_same(held, gate):
    engine = held()
    engine.submit([1])
    gate.open()
    eventually(lambda: [1] in gate.batches)
    eventually(lambda: engine.engine.stats()["completed"] == 2)


def test_an_engine_without_workers_ends_its_requests_when_it_goes():
    engine = make_engine()
    futures = [engine.submit([1], None, 0)]
    reference = weakref.ref(futures[0])
    del engine
    with pytest.raises(RequestTimeout):
        futures[0].result(0.01)
    futures.clear()
    gc.collect()
    assert reference() is None


def test_what_workers_of_this_process_do_is_refused():
    engine = make_engine()
    with pytest.raises(RuntimeError, match="processes"):
        engine.next_batch()
    with pytest.raises(RuntimeError, match="processes"):
        engine.run_timer()
    with pytest.raises(ValueError, match="remote=True"):
        _core.Server(make_engine(remote=False), 1, None, None)
    server = _core.Server(engine, 1, None, None)
    with pytest.raises(ValueError, match="already"):
        _core.Relay(engine, server.address)


# ------------------------------------------------------------- callbacks and loops


def test_callbacks_run_once_in_order_in_a_thread_of_their_own(held, gate):
    engine = held()
    called = []
    names = []

    def note(number):
        def callback(future):
            called.append((number, future.result()))
            names.append(threading.current_thread().name)

        return callback

    for number in range(3):
        engine.first.add_done_callback(note(number))
    assert called == []
    gate.open()
    eventually(lambda: len(names) == 3)
    assert called == [(0, [0]), (1, [0]), (2, [0])]
    assert set(names) == {"service-streamer-callbacks"}
    engine.first.add_done_callback(note(3))
    assert called[3] == (3, [0]), "at once"
    assert names[3] == threading.current_thread().name


def test_a_callback_that_raises_is_logged_and_harms_nobody(remote, caplog):
    engine = remote()
    called = threading.Event()
    future = engine.submit([1])
    future.add_done_callback(lambda future: 1 / 0)
    future.add_done_callback(lambda future: called.set())
    assert called.wait(LONG)
    assert "ZeroDivisionError" in caplog.text


def test_a_callback_may_ask_for_more(remote):
    engine = remote()
    answers = []
    done = threading.Event()

    def ask_again(future):
        answers.append(engine.predict([future.result()[0]]))
        done.set()

    engine.submit([1]).add_done_callback(ask_again)
    assert done.wait(LONG)
    assert answers == [[4]]


def test_flush_waits_for_the_callbacks_of_all_that_has_ended(held, gate):
    engine = held()
    called = []
    engine.first.add_done_callback(called.append)
    gate.open()
    engine.first.result(LONG)
    has_ended_for_all(engine)
    assert _callbacks.flush(LONG)
    assert called == [engine.first]


def has_ended_for_all(engine):
    """Wait until callbacks have heard of what `result` has returned: they do a moment later."""
    engine.predict([1])  # published by the same thread, one after the other


def test_concurrent_futures_wait_and_as_completed(held, gate):
    engine = held()
    futures = [engine.submit([i]) for i in range(20)]
    done, pending = concurrent.futures.wait(futures, 0.01)
    assert (len(done), len(pending)) == (0, 20)
    gate.open()
    done, pending = concurrent.futures.wait(futures, LONG)
    assert (len(done), len(pending)) == (20, 0)
    assert sorted(f.result()[0] for f in concurrent.futures.as_completed(futures, LONG)) == [
        2 * i for i in range(20)
    ]


def test_concurrent_futures_wait_for_the_first_exception(remote, gate):
    engine = remote(Gate_then(gate, lambda batch: [1 // item for item in batch]), batch_size=1)
    slow = engine.submit([1])
    gate.wait_entered()
    failing = engine.submit([0])
    gate.open()
    done, _ = concurrent.futures.wait(
        [failing, slow], LONG, return_when=concurrent.futures.FIRST_EXCEPTION
    )
    assert failing in done


class Hungry:
    def __reduce__(self):
        return _refuse_memory, ()


def _refuse_memory():
    raise MemoryError


def test_who_waits_for_many_hears_of_an_answer_for_which_there_is_no_memory(remote, gate):
    engine = remote(Gate_then(gate, lambda batch: [Hungry() for _ in batch]))
    future = engine.submit([1])
    future._condition  # noqa: B018  wait() has it made
    gate.open()
    done, _ = concurrent.futures.wait([future], LONG)
    assert done == {future}
    with pytest.raises(MemoryError):
        future.result()


def test_a_loop_awaits_many(remote, run):
    engine = remote(batch_size=64)

    async def main():
        async def one(i):
            return await engine.engine.submit_async([i], LONG, 0)

        return await asyncio.gather(*(one(i) for i in range(500)))

    assert run(main()) == [[2 * i] for i in range(500)]


def test_a_task_that_is_cancelled_cancels_its_request(held, gate, run):
    engine = held()

    async def main():
        future = engine.submit([1])

        async def wait():
            await future

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert future.cancelled()
        wrapped = asyncio.wrap_future(engine.first)
        gate.open()
        assert await wrapped == [0]

    run(main())


def test_a_loop_that_closed_before_its_answer_came_is_not_kept(held, gate):
    engine = held()

    async def main():
        task = asyncio.ensure_future(wait_for(engine.first))
        await asyncio.sleep(0)
        return task

    async def wait_for(future):
        await asyncio.shield(asyncio.wrap_future(future))
        await future

    loop = asyncio.new_event_loop()
    before = open_descriptors()
    task = loop.run_until_complete(main())
    gone = weakref.ref(task)
    del task
    loop.close()
    del loop
    gate.open()
    assert engine.first.result(LONG) == [0]
    has_ended_for_all(engine)
    assert _callbacks.flush(LONG)
    gc.collect()
    # what is left in the closed loop's mailbox goes when the next one is made
    _core.Mailbox().close()
    gc.collect()
    assert gone() is None
    assert open_descriptors() <= before


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_tokens_that_come_after_their_mailbox_was_closed_are_released(held, gate):
    engine = held()

    class Token:
        pass

    token = Token()
    gone = weakref.ref(token)
    mailbox = _core.Mailbox()
    assert engine.first._attach(mailbox, token)
    mailbox.close()
    del token
    assert gone() is not None
    assert engine.first._attach(mailbox, Token()), "nothing will come, and nothing is wrong"
    gate.open()
    engine.first.result(LONG)
    eventually(lambda: _core.Mailbox().close() or gone() is None)


def test_a_mailbox_gets_each_token_once(held, gate):
    engine = held()
    mailbox = _core.Mailbox()
    queued = [engine.submit([i]) for i in range(5)]
    for i, future in enumerate(queued):
        assert future._attach(mailbox, i)
        assert future._attach(mailbox, -i)
    gate.open()
    assert [future.result(LONG) for future in queued] == [[2 * i] for i in range(5)]
    tokens = []
    eventually(lambda: len(tokens.extend(mailbox.drain()) or tokens) == 10)
    assert sorted(tokens) == sorted([*range(5), *(-i for i in range(5))])
    assert not queued[0]._attach(mailbox, "late")
    mailbox.close()


# -------------------------------------------------------------- memory and processes


def test_nothing_is_left_of_requests_and_answers(remote):
    engine = remote(lambda batch: [np.zeros(LARGE) for _ in batch])
    for _ in range(20):
        engine.predict([np.zeros(LARGE)] * 4)
    before = open_descriptors()
    kept = []
    for _ in range(100):
        kept = engine.predict([np.zeros(LARGE)] * 4)
    del kept
    assert open_descriptors() <= before + 16
    future = engine.submit([1])
    future.result()
    gone = weakref.ref(future)
    del future
    assert gone() is None


def test_a_long_queue_of_arrays_leaves_the_application_its_descriptors(child):
    child(
        """
        import resource, sys
        sys.path.insert(0, "tests/python")
        import numpy as np
        from conftest import Gate
        from remote import RemoteEngine

        resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
        gate = Gate(lambda batch: [2 * array for array in batch])
        engine = RemoteEngine(gate)
        futures = [engine.submit([np.full(10_000, i)]) for i in range(300)]
        files = [open("/dev/null") for _ in range(50)]
        gate.open()
        for i, future in enumerate(futures):
            (array,) = future.result(30)
            assert array.min() == array.max() == 2 * i
        """
    )


def test_an_answer_that_nobody_looked_at_is_released(remote):
    engine = remote(lambda batch: [np.zeros(LARGE) for _ in batch])
    engine.predict([0] * 8)
    before = None
    for _ in range(50):
        futures = [engine.submit([i]) for i in range(4)]
        for future in futures:
            eventually(future.done)
        del futures, future
        before = before or open_descriptors()
    assert open_descriptors() <= before + 16


def test_cycles_through_a_future_are_collected(held, gate):
    engine = held()
    queued = engine.submit([1])
    queued.itself = queued
    gone = weakref.ref(queued)
    queued.add_done_callback(functools.partial(print, queued, file=io.StringIO()))
    queued.cancel()
    _callbacks.flush(LONG)
    del queued
    gc.collect()
    assert gone() is None
    gate.open()


def test_a_forked_child_knows_what_had_ended_and_that_the_rest_is_its_parents(child):
    child(
        """
        import os, sys
        sys.path.insert(0, "tests/python")
        import numpy as np
        from conftest import Gate
        from remote import RemoteEngine
        import service_streamer
        from service_streamer import StreamerClosed, _core

        service_streamer.ThreadedStreamer(len, 8)  # knows of forks
        gate = Gate()
        engine = RemoteEngine(gate)
        gate.open()
        ended = engine.submit([1, 2])
        ended._condition
        assert engine.predict([1]) == [2]
        gate.shut()
        running = engine.submit([3])
        running.add_done_callback(print)
        mailbox = _core.Mailbox()
        assert running._attach(mailbox, "token")
        pid = os.fork()
        if pid == 0:
            assert ended.result() == [2, 4]
            try:
                running.result()
            except StreamerClosed:
                pass
            try:
                engine.submit([1])
            except StreamerClosed:
                pass
            mailbox.close()
            del running, ended, mailbox
            other = RemoteEngine(lambda batch: batch)  # all of it works here, too
            called = []
            future = other.submit([7])
            future.add_done_callback(called.append)
            assert future.result(30) == [7]
            assert service_streamer._callbacks.flush(30)
            assert called == [future]
            other.close()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        gate.open()
        assert running.result(30) == [6]
        """
    )


def test_the_interpreter_may_end_with_everything_under_way(child):
    child(
        """
        import sys, threading
        sys.path.insert(0, "tests/python")
        from conftest import Gate
        from remote import RemoteEngine

        gate = Gate()
        engine = RemoteEngine(gate)
        engine.submit([0]).add_done_callback(print)
        gate.wait_entered()
        for _ in range(20):
            threading.Thread(target=engine.predict, args=([1],), daemon=True).start()
        futures = [engine.submit([object] * 100) for _ in range(10)]
        for future in futures:
            future.add_done_callback(print)
        """
    )


def test_ctrl_c_ends_the_wait_for_a_remote_answer(child):
    child(
        """
        import os, signal, sys, threading
        sys.path.insert(0, "tests/python")
        from conftest import Gate
        from remote import RemoteEngine

        gate = Gate()
        engine = RemoteEngine(gate)

        def interrupt():
            gate.wait_entered()  # so the main thread has asked
            os.kill(os.getpid(), signal.SIGINT)

        try:
            threading.Thread(target=interrupt).start()
            engine.predict([1])
        except KeyboardInterrupt:
            gate.open()
            print(engine.predict([2]))
            os._exit(0)
        """
    )


def test_greenlets_wait_for_remote_answers(child):
    child(
        """
        from gevent import monkey
        monkey.patch_all()
        import gevent, sys
        sys.path.insert(0, "tests/python")
        sys.path.insert(0, "tests")
        import os, socket
        from service_streamer import _core, _threads, _worker
        from remote import make_engine

        engine = make_engine(batch_size=64)
        server = _core.Server(engine, 1, None, None)
        server.start()
        ours, theirs = socket.socketpair()
        server.add_worker(ours.detach(), 2**22 + 1, b"")
        fd = theirs.detach()
        gate, key = os.pipe()

        def gated(items):
            os.read(gate, 1)
            return items

        def work():
            link = _core.WorkerLink(fd, False)
            link.receive_setup()
            link.send_ready("{}")
            while (batch := link.next_batch()) is not None:
                _worker.serve(batch, gated, True)
                del batch

        _threads.NativeThread(work, "worker").start()
        jobs = [gevent.spawn(engine.predict, [i], 30, 0) for i in range(200)]
        # it runs while they wait: otherwise nobody would let the model answer
        turn = gevent.spawn(os.write, key, b"." * len(jobs))
        gevent.joinall(jobs)
        assert [job.value for job in jobs] == [[i] for i in range(200)]
        turn.get()
        server.stop()
        os._exit(0)
        """
    )


def test_workers_report_what_they_did(remote):
    import json

    engine = remote()
    engine.predict(list(range(20)))
    stats = json.loads(engine.server.stats())
    (worker,) = stats["worker_processes"]
    assert worker["batches"] == 3
    assert worker["items"] == 20
    assert worker["about"] in ('{"pid": 1}', {"pid": 1})
    assert os.getpid() != worker["pid"]
