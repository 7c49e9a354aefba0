"""key=: the items that may share a run of a torch model, native or callable."""

import gc
import weakref

import pytest
from native_models import PAIRS
from waits import LONG

from service_streamer import ThreadedStreamer

pytest_plugins = ["batched_fixtures", "native_fixtures"]
pytestmark = pytest.mark.torch


class Box:
    """A key with a chosen hash."""

    def __init__(self, content):
        self._content = content

    def __hash__(self):
        return 1

    def __eq__(self, other):
        return self._content == other._content


def parity(item):
    return "odd" if item[0] % 2 else "even"


# ------------------------------------------------------------------- callables


def test_only_items_with_equal_keys_run_together_oldest_first(torch, batched, noting):
    model = batched(noting, key=parity)
    outputs = model([torch.tensor([n]) for n in (3, 2, 5, 4, 7)])
    assert [output.item() for output in outputs] == [6, 4, 10, 8, 14]
    assert noting.batches == [[[3], [5], [7]], [[2], [4]]]


def test_keys_are_compared_not_their_hashes(torch, batched, noting):
    batched(noting, key=lambda item: Box(item.item()))([torch.tensor(n) for n in (1, 2, 1)])
    assert noting.batches == [[1, 1], [2]]


def test_an_exception_of_the_key_function_reaches_its_caller(torch, served_batched, noting):
    def key(item):
        if item[0] == 13:
            raise LookupError("13 has no key")
        return [] if item[0] == 14 else 0

    streamer = served_batched(noting, key=key)
    good = [streamer.submit([torch.tensor([1])]) for _ in range(2)]
    without, unhashable = (streamer.submit([torch.tensor([n])]) for n in (13, 14))
    with pytest.raises(LookupError, match="13 has no key"):
        without.result(LONG)
    with pytest.raises(TypeError, match=r"key.*\[\]"):
        unhashable.result(LONG)
    assert [future.result(LONG)[0].item() for future in good] == [2, 2]
    assert {n for batch in noting.batches for (n,) in batch} == {1}


# ------------------------------------------------------------------- native models


def rows(torch, *numbers):
    return [torch.full((3,), float(number)) for number in numbers]


def test_a_run_of_a_native_model_has_one_key(torch, served):
    streamer = served("Crowd", key=parity)
    outputs = streamer.predict(rows(torch, 1, 2, 3, 4, 5))
    assert [output[0].item() for output in outputs] == [9, 6, 9, 6, 9]
    assert streamer.predict(rows(torch, 7))[0][0].item() == 7


def test_the_first_run_of_a_native_model_has_one_bucket(torch, served):
    options = {"weight": lambda item: item[0].item(), "bucket": (5,)}
    streamer = served("Crowd", streamer=options)
    outputs = streamer.predict(rows(torch, 9, 1, 2))
    assert [output[0].item() for output in outputs] == [9, 3, 3]


def test_the_key_of_the_model_and_of_the_streamer_exclude_each_other(torch, served):
    with pytest.raises(ValueError, match="key is given twice, for the model and for the streamer"):
        served("Crowd", key=parity, streamer={"key": parity})
    streamer = served("Crowd", streamer={"key": parity})
    assert [output[0].item() for output in streamer.predict(rows(torch, 1, 2, 3))] == [4, 2, 4]


def test_the_tensors_of_a_batch_are_in_the_order_of_the_items(torch, served):
    options = {"key": lambda item: item[0][0].item() % 2, "output": "batch"}
    streamer = served("Pairs", PAIRS, streamer=options)
    items = [(torch.full((2,), float(n)), torch.zeros(2)) for n in (1, 2, 3, 4)]
    one_by_one = [streamer.predict([item]) for item in items]
    for together, parts in zip(streamer.predict(items), zip(*one_by_one, strict=True), strict=True):
        assert torch.equal(together, torch.cat(parts))


def test_a_native_model_that_is_called_uses_keys_too(torch, model):
    outputs = model("Crowd", key=parity)(rows(torch, 1, 2, 3))
    assert [output[0].item() for output in outputs] == [4, 2, 4]


def test_keys_beyond_the_limit_are_forgotten_not_confused(torch, served):
    streamer = served("Crowd", key=lambda item: item[0].item())
    for first in range(0, 6000, 4):
        outputs = streamer.predict(rows(torch, *range(first, first + 4)))
        assert [output[0].item() for output in outputs] == list(range(first, first + 4))


def test_a_key_function_does_not_keep_the_streamer_alive(torch, model):
    class App:
        def __init__(self):
            self.streamer = ThreadedStreamer(model(key=self.key), 8)

        def key(self, item):
            return 0

    app = App()
    app.streamer.predict(rows(torch, 1))
    app.streamer.close(timeout=LONG)
    watched = weakref.ref(app)
    del app
    gc.collect()
    assert watched() is None
