"""What a batch with many guilty requests or without enough memory ends in."""

import threading

import pytest
from isolation import Limited, OutOfMemoryError, bound, one_batch
from waits import LONG, eventually

from service_streamer import RequestTimeout, StreamerClosed

pytestmark = pytest.mark.not_redis  # which requests share a batch is up to the worker there


@pytest.mark.parametrize("error", [MemoryError, OutOfMemoryError])
def test_a_batch_too_large_for_the_memory_is_answered_in_parts(held, gate, journal, error):
    model = Limited(journal, 8, error)
    futures = one_batch(held, gate, model, [[i, i + 1, i + 2] for i in range(0, 30, 3)])
    assert [future.result() for future in futures] == [[i, i + 1, i + 2] for i in range(0, 30, 3)]
    assert len(journal.all()) <= bound(30)


@pytest.mark.in_process
@pytest.mark.parametrize("drain", [True, False])
def test_what_is_left_runs_after_everything_else_or_is_closed(held, gate, drain):
    runs = []

    def model(batch):
        if len(batch) == 8:
            other.append(streamer.submit(["other"], priority=-5))
            if not drain:
                threading.Thread(target=streamer.close, args=(False,)).start()
                eventually(lambda: streamer.stats().dropped)
        runs.append(list(batch))
        if batch != ["other"]:
            raise ValueError(batch)
        return batch

    other = []
    gate._predict = lambda batch: batch if batch == ["first"] else model(batch)
    streamer = held(batch_size=8, isolation_budget=0)
    futures = [streamer.submit([i]) for i in range(8)]
    gate.open()
    errors = [future.exception(LONG) for future in futures]
    if drain:
        assert other[0].result(LONG) == ["other"]
        assert [error.args for error in errors] == [([i],) for i in range(8)]
        assert runs[-6:] == [["other"], [3], [4], [5], [6], [7]]
    else:
        assert isinstance(other[0].exception(LONG), StreamerClosed)
        assert [type(error) for error in errors] == 3 * [ValueError] + 5 * [StreamerClosed]


@pytest.mark.in_process
def test_a_deadline_holds_while_a_request_waits_to_run_alone(held, gate):
    def model(batch):
        if batch == ["busy"]:
            eventually(late.done)
            return batch
        if len(batch) == 8:
            busy.append(streamer.submit(["busy"]))
        raise ValueError(batch)

    busy = []
    gate._predict = lambda batch: batch if batch == ["first"] else model(batch)
    streamer = held(batch_size=8, isolation_budget=0)
    futures = [streamer.submit([i]) for i in range(7)]
    late = streamer.submit([7], timeout=0.5)
    gate.open()
    assert isinstance(late.exception(LONG), RequestTimeout)
    assert busy[0].result(LONG) == ["busy"]
    assert [future.exception(LONG).args for future in futures] == [([i],) for i in range(7)]


@pytest.mark.in_process
def test_a_request_that_ended_is_not_run_in_parts(held, gate):
    runs = []

    def model(batch):
        runs.append(batch)
        if len(runs) == 1:
            future._abandon()
            raise MemoryError
        return batch

    gate._predict = lambda batch: batch if batch == ["first"] else model(batch)
    streamer = held(batch_size=4)
    future = streamer.submit([0, 1, 2, 3])
    gate.open()
    assert streamer.predict(["next"]) == ["next"]
    assert runs == [[0, 1, 2, 3], ["next"]]
