"""What comes back from worker processes: outputs, arrays, what callers share of a batch."""

import concurrent.futures
import threading
from typing import ClassVar

import numpy as np
import pytest
from remote import LONG
from waits import eventually

pytest_plugins = ["remote_fixtures"]

LARGE = 100_000


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


def test_callers_share_nothing_but_their_batch(held_remote, remote_gate):
    engine = held_remote()
    array = np.arange(LARGE)
    futures = [engine.submit([array]) for _ in range(4)]
    remote_gate.open()
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
