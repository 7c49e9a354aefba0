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


def test_the_parts_of_a_request_that_several_workers_answer_are_joined(remote):
    engine = remote(workers=3)
    assert engine.predict(list(range(1000))) == [2 * i for i in range(1000)]


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
