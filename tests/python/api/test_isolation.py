"""When a batch raises it is bisected: what fails, what runs again, and what is counted."""

import re

import pytest
from isolation import Poisoned, one_batch
from waits import LONG, eventually

from service_streamer import RequestTimeout, WorkerLost

pytestmark = pytest.mark.not_redis  # which requests share a batch is up to the worker there


def test_one_request_is_run_once(held, gate, journal):
    model = Poisoned(journal, ["bad"])
    (future,) = one_batch(held, gate, model, [["a", "bad", "b"]])
    assert isinstance(future.exception(), ValueError)
    assert len(journal.all()) == 1


@pytest.mark.outside
def test_without_isolation_the_batch_fails_as_a_whole(held, gate, journal):
    model = Poisoned(journal, [3])
    futures = one_batch(held, gate, model, [[i] for i in range(8)], isolate_errors=False)
    assert all(isinstance(future.exception(), ValueError) for future in futures)
    assert len(journal.all()) == 1


def test_an_exit_while_bisecting_fails_its_request_only(held, gate):
    def model(batch):
        if len(batch) == 4:
            raise ValueError("look closer")
        if 0 in batch:
            raise SystemExit("half")
        return batch

    futures = one_batch(held, gate, model, [[i] for i in range(4)])
    errors = [future.exception() for future in futures]
    assert [type(error) for error in errors] == [WorkerLost] + 3 * [type(None)]


def test_a_wrong_length_while_bisecting_fails_that_group_only(held, gate):
    def model(batch):
        if len(batch) == 6:
            raise ValueError("look closer")
        return [] if 0 in batch else batch

    futures = one_batch(held, gate, model, [[i] for i in range(6)])
    names = [type(future.exception()).__name__ for future in futures]
    assert names == 2 * ["OutputSizeMismatch"] + 4 * ["NoneType"]


def test_a_model_that_changes_its_list_and_raises(held, gate):
    def model(batch):
        bad = 3 in batch
        outputs = list(batch)
        batch.clear()
        if bad:
            raise ValueError("three")
        return outputs

    futures = one_batch(held, gate, model, [[i] for i in range(8)])
    assert [i for i, future in enumerate(futures) if future.exception()] == [3]
    assert futures[7].result() == [7]


def test_what_isolation_saved_is_counted(held, gate, journal):
    gate._predict = Poisoned(journal, [3])
    streamer = held(batch_size=8)
    futures = [streamer.submit([i]) for i in range(8)]
    gate.open()
    for future in futures:
        future.exception(LONG)
    stats = streamer.stats()
    assert (stats.completed, stats.failed, stats.isolated) == (8, 1, 7)
    assert re.search(r"requests .*\b7\b", streamer.explain())


@pytest.mark.in_process
@pytest.mark.parametrize("error", [ValueError, MemoryError])  # which runs it in parts
@pytest.mark.parametrize("ended", [[1], [0, 3], [0, 1, 2, 3]])
def test_a_request_that_ended_is_not_run_again(held, gate, ended, error):
    runs = []

    def model(batch):
        runs.append(batch)
        if len(runs) == 1:
            for i in ended:
                futures[i]._abandon()
            raise error("look closer")
        return batch

    gate._predict = lambda batch: batch if batch == ["first"] else model(batch)
    streamer = held(batch_size=4)
    futures = [streamer.submit([i]) for i in range(4)]
    gate.open()
    for i in set(range(4)).difference(ended):
        assert futures[i].result(LONG) == [i]
    assert streamer.predict(["next"]) == ["next"]
    assert all(futures[i].cancelled() for i in ended)
    assert [i for run in runs[1:] for i in run] == [i for i in range(4) if i not in ended] + [
        "next"
    ]
    assert all(runs)


@pytest.mark.in_process
def test_an_expired_request_is_not_run_again(held, gate):
    runs = []

    def model(batch):
        runs.append(batch)
        eventually(late.done)
        if "bad" in batch:
            raise ValueError("bad")
        return batch

    gate._predict = lambda batch: batch if batch == ["first"] else model(batch)
    streamer = held(batch_size=4)
    good = streamer.submit(["good"])
    late = streamer.submit(["late"], timeout=0.5)
    bad = streamer.submit(["bad"])
    gate.open()
    assert good.result(LONG) == ["good"]
    assert isinstance(bad.exception(LONG), ValueError)
    assert isinstance(late.exception(LONG), RequestTimeout)
    assert not any("late" in run for run in runs[1:])
