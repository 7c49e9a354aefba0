"""A Future is a concurrent.futures.Future that the streamer answers."""

import concurrent.futures
import gc
import logging
import threading
import weakref

import pytest
from waits import LONG, eventually

from service_streamer import CancelledError, Future, RequestTimeout

pytestmark = pytest.mark.every_python


def fail(batch):
    raise ValueError("no")


def test_it_is_a_future_of_the_standard_library(streamers):
    future = streamers().submit([1])
    assert isinstance(future, Future)
    assert isinstance(future, concurrent.futures.Future)


def test_snapshot_that_asyncio_of_python_3_14_reads(held, gate, streamers):
    streamer = held()
    future, unwanted = streamer.submit([1]), streamer.submit([2])
    assert future._get_snapshot() == (False, False, None, None)
    assert unwanted.cancel()
    assert unwanted._get_snapshot() == (True, True, None, None)
    gate.open()
    future.result(LONG)
    assert future._get_snapshot() == (True, False, [2], None)
    failed = streamers(fail).submit([1])
    error = failed.exception(LONG)
    assert failed._get_snapshot() == (True, False, None, error)


def test_result_is_read_by_many_threads(held, gate, threads):
    future = held().submit([1])
    barrier = threading.Barrier(9)

    def read():
        barrier.wait(LONG)
        return future.result(LONG)

    for _ in range(8):
        threads.run(read)
    barrier.wait(LONG)
    gate.open()
    assert threads.join() == [[2]] * 8
    assert future.result() == [2]


def test_result_times_out_while_the_request_goes_on(held, gate):
    streamer = held()
    future = streamer.submit([1])
    for timeout in (0, 0.01):
        with pytest.raises(RequestTimeout, match=rf"timeout={timeout}"):
            future.result(timeout)
        with pytest.raises(TimeoutError):
            future.exception(timeout=timeout)
        with pytest.raises(concurrent.futures.TimeoutError):
            future.result(timeout=timeout)
    gate.open()
    assert future.result(LONG) == [2]


def test_exception_returns_what_result_raises(streamers):
    future = streamers(fail).submit([1])
    error = future.exception(LONG)
    assert isinstance(error, ValueError)
    for _ in range(2):
        with pytest.raises(ValueError, match="no") as info:
            future.result()
        assert info.value is error
    assert streamers().submit([1]).exception() is None


@pytest.mark.not_redis
def test_pending_then_running_then_done(held, gate):
    streamer = held()
    future = streamer.submit([1])
    assert (future.running(), future.done(), future.cancelled()) == (False, False, False)
    assert streamer.first.running()
    assert not streamer.first.done()
    gate.open()
    future.result(LONG)
    assert (future.running(), future.done(), future.cancelled()) == (False, True, False)


@pytest.mark.outside
@pytest.mark.not_redis
def test_a_queued_request_is_cancelled_and_never_reaches_the_model(held, gate):
    streamer = held()
    future = streamer.submit(["unwanted"])
    assert future.cancel()
    assert future.cancelled()
    assert future.done()
    assert future.cancel()  # again
    for read in (future.result, future.exception):
        with pytest.raises(CancelledError):
            read()
    gate.open()
    assert streamer.predict([1]) == [2]
    assert gate.batches == [["first"], [1]]
    assert streamer.stats().cancelled == 1


@pytest.mark.not_redis
def test_a_running_or_finished_request_is_not_cancelled(held, gate):
    streamer = held()
    assert not streamer.first.cancel()
    gate.open()
    assert streamer.first.result(LONG) == ["firstfirst"]
    assert not streamer.first.cancel()
    assert not streamer.first.cancelled()


@pytest.mark.outside
@pytest.mark.not_redis
def test_the_rest_of_a_request_is_cancelled_while_its_first_part_runs(streamers, gate):
    streamer = streamers(gate, batch_size=2)
    future = streamer.submit([1, 2, 3, 4])
    gate.wait_entered()
    assert future.running()
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result()
    gate.open()
    assert streamer.predict([5]) == [10]
    assert gate.batches == [[1, 2], [5]]


def test_abandoning_ends_a_running_request_as_cancelled(held, gate):
    streamer = held()
    streamer.first._abandon()
    assert streamer.first.cancelled()
    gate.open()
    assert streamer.predict([1]) == [2]


def test_callbacks_run_once_in_order_with_the_future(held, gate):
    future = held().submit([1])
    seen = []
    done = threading.Event()
    for i in range(3):
        future.add_done_callback(lambda f, i=i: seen.append((i, f)))
    future.add_done_callback(lambda f: done.set())
    assert seen == []
    gate.open()
    assert done.wait(LONG)
    assert seen == [(0, future), (1, future), (2, future)]
    future.add_done_callback(lambda f: seen.append("at once"))
    assert seen[3:] == ["at once"]


def test_callbacks_of_a_cancelled_future_run(held):
    future = held().submit([1])
    seen = []
    future.add_done_callback(lambda f: seen.append(f.cancelled()))
    future.cancel()
    eventually(lambda: seen == [True])


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, KeyboardInterrupt])
def test_a_callback_that_raises_affects_no_other(held, gate, caplog, error):
    streamer = held()
    done = threading.Event()

    def raising(future):
        raise error("in the callback")

    future = streamer.submit([1])
    future.add_done_callback(raising)
    future.add_done_callback(lambda f: done.set())
    with caplog.at_level(logging.ERROR, logger="service_streamer"):
        gate.open()
        assert done.wait(LONG)
    assert future.result() == [2]
    assert streamer.predict([2]) == [4]
    # a thread that a test before this one has left may say something, too
    told = [record for record in caplog.records if "in the callback" in str(record.exc_info)]
    assert [record.name for record in told] == ["service_streamer"]
    assert error.__name__ in caplog.text


def test_a_callback_that_raises_at_once_is_logged_too(streamers, caplog):
    future = streamers().submit([1])
    future.result()
    with caplog.at_level(logging.ERROR, logger="service_streamer"):
        future.add_done_callback(lambda f: 1 / 0)
    assert "ZeroDivisionError" in caplog.text


def test_ctrl_c_in_a_callback_of_the_main_thread_is_not_lost(streamers):
    future = streamers().submit([1])
    future.result()

    def interrupted(future):
        raise KeyboardInterrupt

    def wait():
        future.add_done_callback(interrupted)
        threading.Event().wait(LONG)

    with pytest.raises(KeyboardInterrupt):
        wait()


def test_only_the_streamer_answers(streamers):
    future = streamers().submit([1])
    for method, argument in [("set_result", (1,)), ("set_exception", (ValueError(),))]:
        with pytest.raises(concurrent.futures.InvalidStateError, match=method):
            getattr(future, method)(*argument)
    with pytest.raises(concurrent.futures.InvalidStateError, match="notify_cancel"):
        future.set_running_or_notify_cancel()
    assert future.result() == [2]


def test_only_the_streamer_makes_futures():
    with pytest.raises(TypeError):
        Future()


@pytest.mark.not_redis
def test_repr_has_the_state(held, gate, streamers):
    streamer = held()
    queued = streamer.submit([1])
    cancelled = streamer.submit([1])
    cancelled.cancel()
    assert "running" in repr(streamer.first)
    assert "pending" in repr(queued)
    assert "cancelled" in repr(cancelled)
    gate.open()
    queued.result(LONG)
    assert "returned list" in repr(queued)
    failed = streamers(fail).submit([1])
    failed.exception(LONG)
    assert "raised ValueError" in repr(failed)


@pytest.mark.in_process
def test_the_worker_keeps_no_reference_to_the_last_batch(streamers):
    class Output:
        pass

    streamer = streamers(lambda batch: [Output() for _ in batch])
    gone = weakref.ref(streamer.predict([1])[0])
    eventually(lambda: gc.collect() >= 0 and gone() is None)


def test_a_forgotten_future_goes_when_its_request_has_ended(held, gate):
    streamer = held()
    future = streamer.submit([1])
    gone = weakref.ref(future)
    del future
    gate.open()
    assert streamer.predict([2]) == [4]
    eventually(lambda: gc.collect() >= 0 and gone() is None)


@pytest.mark.parametrize("fn", [(1, 2), (), None, "text", 3])
def test_a_callback_that_cannot_be_called_is_refused(held, gate, fn):
    future = held().submit([1])
    with pytest.raises(TypeError, match=f"callable.*{type(fn).__name__}"):
        future.add_done_callback(fn)
    gate.open()
    assert future.result(LONG) == [2]
    with pytest.raises(TypeError, match="callable"):
        future.add_done_callback(fn)


def test_add_done_callback_takes_its_argument_by_name(held, gate):
    future = held().submit([1])
    seen = []
    future.add_done_callback(fn=seen.append)
    future.cancel()
    future.add_done_callback(fn=seen.append)
    eventually(lambda: seen == [future, future])


def test_a_negative_timeout_is_over_at_once(held, gate):
    future = held().submit([1])
    for read in (future.result, future.exception):
        with pytest.raises(RequestTimeout):
            read(-1)
        with pytest.raises(RequestTimeout):
            read(timeout=-0.001)
    gate.open()
    assert future.result(LONG) == [2]
    assert future.result(-1) == [2]
    assert future.exception(-1) is None
