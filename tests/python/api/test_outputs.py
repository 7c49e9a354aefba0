"""What a model may return, and what its callers then get."""

import sys
import time
import types

import pytest
from thread_models import Indexed
from waits import LONG, eventually

from service_streamer import RequestTimeout, ThreadedStreamer


def cut(held, gate, predict, requests, **settings):
    """The results of requests that were one batch."""
    gate._predict = lambda batch: batch if batch == ["first"] else predict(batch)
    settings = {"batch_size": sum(map(len, requests)), **settings}
    streamer = held(**settings)
    futures = [streamer.submit(request) for request in requests]
    gate.open()
    return [future.result(LONG) for future in futures]


def test_any_sequence_will_do(held, gate):
    assert cut(held, gate, Indexed, [[1, 2], [3]]) == [[1, 2], [3]]


class Arrays:
    """What is true of arrays and of tensors: `stack`, `full`, `Array`, `memory_of`."""

    def rows(self, batch):
        return self.stack([self.full((3,), item) for item in batch])

    def test_items_are_rows_of_the_batch(self, held, gate, backend):
        first, second = cut(held, gate, self.rows, [[1, 2], [3]])
        assert type(first) is list
        assert [row.tolist() for row in first] == [[1, 1, 1], [2, 2, 2]]
        assert [row.tolist() for row in second] == [[3, 3, 3]]
        if backend == "threads":  # without a copy
            assert len({self.memory_of(row) for row in [*first, *second]}) == 1

    def test_batch_output_is_an_array_of_each_callers_rows(self, held, gate, backend):
        first, second = cut(held, gate, self.rows, [[1, 2], [3]], output="batch")
        assert type(first) is type(second) is self.Array
        assert (first.tolist(), second.tolist()) == ([[1, 1, 1], [2, 2, 2]], [[3, 3, 3]])
        if backend == "threads":
            assert self.memory_of(first) == self.memory_of(second)


class TestNumpy(Arrays):
    numpy = pytest.importorskip("numpy")
    stack, full = staticmethod(numpy.stack), staticmethod(numpy.full)
    Array = numpy.ndarray

    def memory_of(self, array):
        return id(array.base)

    def test_items_of_one_dimension_are_scalars(self, held, gate):
        first, second = cut(held, gate, self.numpy.array, [[1.5, 2.5], [3.5]])
        assert (first, second) == ([1.5, 2.5], [3.5])
        assert isinstance(first[0], self.numpy.float64)

    def test_a_scalar_array_has_no_length(self, streamers):
        with pytest.raises(Exception, match="1 item"):
            streamers(lambda batch: self.numpy.array(3)).predict([1])


@pytest.mark.torch
class TestTorch(Arrays):
    @pytest.fixture(autouse=True)
    def _torch(self, torch):
        self.stack, self.full, self.Array = torch.stack, torch.full, torch.Tensor

    def memory_of(self, tensor):
        return tensor.untyped_storage().data_ptr()


class Rows(list):
    """Outputs that look like an array: they are joined by `concatenate` of their module."""

    shape = (1,)
    __module__ = "joining_module"

    def __getitem__(self, index):
        found = super().__getitem__(index)
        return Rows(found) if isinstance(index, slice) else found


@pytest.fixture
def joining(monkeypatch):
    """Makes `concatenate` take until `joining.until`, on the clock of time.monotonic()."""

    def concatenate(pieces):
        eventually(lambda: time.monotonic() > module.until)
        return Rows(item for piece in pieces for item in piece)

    module = types.SimpleNamespace(concatenate=concatenate, until=0.0)
    monkeypatch.setitem(sys.modules, "joining_module", module)
    return module


def answer_or_timeout(streamer, batch, timeout):
    try:
        return list(streamer.predict(batch, timeout=timeout))
    except RequestTimeout:  # the machine was too busy to come to the joining in time
        return batch


@pytest.mark.in_process
def test_a_deadline_passes_while_the_answer_is_joined(streamers, joining):
    streamer = streamers(Rows, batch_size=1, output="batch")
    joining.until = time.monotonic() + 0.3
    assert answer_or_timeout(streamer, [1, 2], 0.2) == [1, 2]
    assert list(streamer.predict([3])) == [3]


@pytest.mark.in_process
def test_a_deadline_passes_while_the_answer_of_another_is_joined(held, gate, threads, joining):
    gate._predict = Rows
    streamer = held(batch_size=3, output="batch")
    large = streamer.submit([1, 2, 3, 4])
    joining.until = time.monotonic() + 0.6
    for i in (5, 6):
        threads.run(answer_or_timeout, streamer, [i], 0.5)
    eventually(lambda: streamer.stats().submitted == 4)
    gate.open()
    assert threads.join() == [[5], [6]]
    assert list(large.result(LONG)) == [1, 2, 3, 4]


def test_each_caller_gets_its_own_list():
    streamer = ThreadedStreamer(lambda batch: batch, 8)
    items = [1, 2, 3]
    outputs = streamer.predict(items)
    assert outputs == items
    assert outputs is not items
    outputs.clear()
    assert streamer.predict(items) == [1, 2, 3]
