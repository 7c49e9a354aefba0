"""key=: which items may be in one run of a model of torch, a native one or a callable."""

import gc
import weakref

import pytest
from waits import LONG

from service_streamer import ThreadedStreamer

pytest_plugins = ["batched_fixtures", "native_fixtures"]
pytestmark = pytest.mark.torch


class Box:
    """A key with a hash of its own."""

    def __init__(self, content):
        self._content = content

    def __hash__(self):
        return 1

    def __eq__(self, other):
        return self._content == other._content


def parity(item):
    return "odd" if item[0] % 2 else "even"


# ------------------------------------------------------------------- callables


def test_only_items_of_equal_keys_are_run_together_the_oldest_first(torch, batched, noting):
    model = batched(noting, key=parity)
    outputs = model([torch.tensor([n]) for n in (3, 2, 5, 4, 7)])
    assert [output.item() for output in outputs] == [6, 4, 10, 8, 14]
    assert noting.batches == [[[3], [5], [7]], [[2], [4]]]


def test_keys_are_compared_not_their_hashes(torch, batched, noting):
    batched(noting, key=lambda item: Box(item.item()))([torch.tensor(n) for n in (1, 2, 1)])
    assert noting.batches == [[1, 1], [2]]


def test_what_a_key_raises_is_its_callers(torch, served_batched, noting):
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


def test_a_run_of_a_native_model_is_homogeneous(torch, served):
    streamer = served("Crowd", key=parity)
    outputs = streamer.predict(rows(torch, 1, 2, 3, 4, 5))
    assert [output[0].item() for output in outputs] == [9, 6, 9, 6, 9]
    assert streamer.predict(rows(torch, 7))[0][0].item() == 7


def test_requests_of_one_key_share_a_run(torch, served):
    # Box has no parity of its own: only the content tells
    streamer = served("Crowd", key=lambda item: Box(parity(item)), workers=1)
    futures = [streamer.submit(rows(torch, n)) for n in (1, 2, 3)]
    streamer.close()  # drains
    sums = [future.result()[0][0].item() for future in futures]
    assert sums[1] == 2
    assert sums[0] + sums[2] in (4, 8)  # apart, or together


def test_a_native_model_by_hand_has_keys_too(torch, model):
    outputs = model("Crowd", key=parity)(rows(torch, 1, 2, 3))
    assert [output[0].item() for output in outputs] == [4, 2, 4]


def test_what_a_key_raises_is_raised_by_submit(torch, served):
    def key(item):
        if item[0] == 13:
            raise LookupError("13 has no key")
        return [] if item[0] == 14 else 0

    streamer = served(key=key)
    with pytest.raises(LookupError, match="13 has no key"):
        streamer.submit(rows(torch, 1, 13))
    with pytest.raises(TypeError, match=r"key.*\[\]"):
        streamer.predict(rows(torch, 14))
    assert streamer.predict(rows(torch, 0))[0].tolist() == [1, 1, 1]
    assert streamer.stats().submitted == 1
    with pytest.raises(TypeError, match=r"key.*3"):
        served(key=3)


def test_keys_beyond_number_are_forgotten_not_mixed_up(torch, served):
    streamer = served("Crowd", key=lambda item: item[0].item())
    for first in range(0, 6000, 4):
        outputs = streamer.predict(rows(torch, *range(first, first + 4)))
        assert [output[0].item() for output in outputs] == list(range(first, first + 4))


def test_a_key_keeps_no_streamer(torch, model):
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
