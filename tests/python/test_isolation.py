"""When a batch raises it is bisected: only the guilty requests fail, at a bounded price."""

import math
import threading

import pytest
from conftest import LONG, eventually

from service_streamer import RequestTimeout, StreamerClosed, WorkerLost

pytestmark = pytest.mark.not_redis  # which requests share a batch is up to the worker there


class Poisoned:
    """Raises for batches that hold a poisonous item; tells its runs."""

    def __init__(self, runs, poison, error=ValueError):
        self.runs = runs
        self.poison = set(poison)
        self.error = error

    def __call__(self, batch):
        self.runs.append(list(batch))
        bad = self.poison.intersection(batch)
        if bad:
            raise self.error(sorted(bad))
        return batch


class Limited:
    """Has no memory for more than `limit` items."""

    def __init__(self, runs, limit, error=MemoryError):
        self.runs = runs
        self.limit = limit
        self.error = error

    def __call__(self, batch):
        self.runs.append(list(batch))
        if len(batch) > self.limit:
            raise self.error(f"{len(batch)} items")
        return batch


class OutOfMemoryError(RuntimeError):
    """As torch has it: known by its name."""


def one_batch(held, gate, model, requests, **settings):
    """Let the model run the requests as one batch; gives the futures when all have ended."""
    gate._predict = lambda batch: batch if batch == ["first"] else model(batch)
    streamer = held(batch_size=sum(map(len, requests)), **settings)
    futures = [streamer.submit(request) for request in requests]
    gate.open()
    for future in futures:
        future.exception(LONG)
    return futures


def bound(n, k=1):
    """Runs to find k guilty requests of n, the first of them all and their own included."""
    return 1 + k * (math.log2(n / k) + 3) + 3


@pytest.mark.parametrize("culprit", [0, 13, 31])
def test_one_poisonous_item_of_32_callers_fails_its_caller_only(held, gate, journal, culprit):
    model = Poisoned(journal, [culprit])
    futures = one_batch(held, gate, model, [[i] for i in range(32)])
    for i, future in enumerate(futures):
        if i == culprit:
            with pytest.raises(ValueError, match=str(culprit)):
                future.result()
        else:
            assert future.result() == [i]
    assert len(journal.all()) <= bound(32)


@pytest.mark.parametrize(
    ("n", "culprit"), [(2, 0), (3, 1), (3, 2), (5, 4), (7, 3), (33, 0), (33, 32), (100, 50)]
)
def test_one_guilty_of_any_number_is_found_within_the_bound(held, gate, journal, n, culprit):
    model = Poisoned(journal, [culprit])
    futures = one_batch(held, gate, model, [[i] for i in range(n)])
    assert [i for i, future in enumerate(futures) if future.exception()] == [culprit]
    assert len(journal.all()) <= bound(n)


def test_a_request_is_not_torn_apart(held, gate, journal):
    model = Poisoned(journal, ["bad"])
    requests = [["a", "b"], ["c", "bad", "d"], ["e"]]
    futures = one_batch(held, gate, model, requests)
    assert [bool(future.exception()) for future in futures] == [False, True, False]
    for run in journal.all():
        assert ("c" in run) == ("bad" in run) == ("d" in run)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_a_quarter_of_guilty_costs_a_bounded_number_of_runs(held, gate, journal, k):
    poison = [i * 32 // k for i in range(k)]
    futures = one_batch(held, gate, Poisoned(journal, poison), [[i] for i in range(32)])
    assert [i for i, future in enumerate(futures) if future.exception()] == poison
    assert len(journal.all()) <= bound(32, k)


def test_a_model_that_is_broken_costs_little_more_than_a_run_for_each(held, gate, journal):
    model = Poisoned(journal, range(64))
    futures = one_batch(held, gate, model, [[i] for i in range(64)])
    assert all(isinstance(future.exception(), ValueError) for future in futures)
    assert len(journal.all()) <= 1 + 64 + 64 / 3


@pytest.mark.parametrize("budget", [0, 1000])
def test_each_of_many_guilty_fails_alone_within_the_budget_or_later(held, gate, journal, budget):
    model = Poisoned(journal, range(0, 32, 2))
    futures = one_batch(held, gate, model, [[i] for i in range(32)], isolation_budget=budget)
    for i, future in enumerate(futures):
        assert (future.exception() is None) == (i % 2 == 1)
    alone = [run for run in journal.all() if len(run) == 1]
    assert [[i] for i in range(0, 32, 2)] == sorted(run for run in alone if run[0] % 2 == 0)


def test_one_request_is_run_once(held, gate, journal):
    model = Poisoned(journal, ["bad"])
    (future,) = one_batch(held, gate, model, [["a", "bad", "b"]])
    assert isinstance(future.exception(), ValueError)
    assert len(journal.all()) == 1


def test_without_isolation_the_batch_fails_as_a_whole(held, gate, journal):
    model = Poisoned(journal, [3])
    futures = one_batch(held, gate, model, [[i] for i in range(8)], isolate_errors=False)
    assert all(isinstance(future.exception(), ValueError) for future in futures)
    assert len(journal.all()) == 1


def test_each_guilty_request_gets_the_exception_of_its_own_run(held, gate, journal):
    model = Poisoned(journal, [0, 3])
    futures = one_batch(held, gate, model, [[i] for i in range(4)])
    assert futures[0].exception().args == ([0],)
    assert futures[3].exception().args == ([3],)


@pytest.mark.parametrize("error", [MemoryError, OutOfMemoryError])
def test_a_batch_too_large_for_the_memory_is_answered_in_parts(held, gate, journal, error):
    model = Limited(journal, 8, error)
    futures = one_batch(held, gate, model, [[i, i + 1, i + 2] for i in range(0, 30, 3)])
    assert [future.result() for future in futures] == [[i, i + 1, i + 2] for i in range(0, 30, 3)]
    assert len(journal.all()) <= bound(30)


def test_a_single_request_too_large_for_the_memory_is_answered_in_parts(held, gate, journal):
    model = Limited(journal, 16)
    (future,) = one_batch(held, gate, model, [list(range(64))])
    assert future.result() == list(range(64))
    assert len(journal.all()) <= bound(64)


def test_memory_that_is_never_enough_ends_in_its_error(held, gate, journal):
    model = Limited(journal, 0)
    futures = one_batch(held, gate, model, [[i] for i in range(16)])
    assert all(isinstance(future.exception(), MemoryError) for future in futures)
    assert len(journal.all()) <= 1 + 16 + math.log2(16) + 1


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


def test_a_failure_that_does_not_come_again_fails_nobody(held, gate, journal):
    def model(batch):
        journal.append(batch)
        if len(journal.all()) <= 3:
            raise ValueError("now and then")
        return batch

    futures = one_batch(held, gate, model, [[i] for i in range(16)])
    assert [future.result() for future in futures] == [[i] for i in range(16)]


def test_a_wrong_length_while_bisecting_fails_that_group_only(held, gate):
    def model(batch):
        if len(batch) == 6:
            raise ValueError("look closer")
        return [] if 0 in batch else batch

    futures = one_batch(held, gate, model, [[i] for i in range(6)])
    names = [type(future.exception()).__name__ for future in futures]
    assert names == 2 * ["OutputSizeMismatch"] + 4 * ["NoneType"]


@pytest.mark.in_process
def test_a_request_cancelled_while_bisecting_stays_cancelled(held, gate):
    futures = []

    def model(batch):
        if len(batch) == 4:
            futures[1]._abandon()
            raise ValueError("look closer")
        return batch

    gate._predict = lambda batch: batch if batch == ["first"] else model(batch)
    streamer = held(batch_size=4)
    futures += [streamer.submit([i]) for i in range(4)]
    gate.open()
    assert [futures[i].result(LONG) for i in (0, 2, 3)] == [[0], [2], [3]]
    assert futures[1].cancelled()


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
    assert "7 answered although" in streamer.explain()


@pytest.mark.in_process
@pytest.mark.parametrize("ended", [[1], [0, 1], [2, 3], [0, 3], [0, 1, 2], [0, 1, 2, 3]])
def test_a_request_that_ended_is_not_run_again(held, gate, ended):
    runs = []

    def model(batch):
        runs.append(batch)
        if len(runs) == 1:
            for i in ended:
                futures[i]._abandon()
            raise ValueError("look closer")
        return batch

    gate._predict = lambda batch: batch if batch == ["first"] else model(batch)
    streamer = held(batch_size=4)
    futures = [streamer.submit([i]) for i in range(4)]
    gate.open()
    for i in set(range(4)).difference(ended):
        assert futures[i].result(LONG) == [i]
    assert streamer.predict(["next"]) == ["next"]
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
