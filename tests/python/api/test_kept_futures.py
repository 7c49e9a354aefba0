"""What a future still has of its request's items when that has ended."""

import gc
import threading
import weakref

import pytest
from waits import LONG, eventually

from service_streamer import RequestTimeout, ThreadedStreamer

pytestmark = pytest.mark.every_python


class Item:
    """Can be seen to go."""

    def __init__(self, kind):
        self.kind = kind


@pytest.fixture(params=["items", "batch"])
def streamer(request):
    """Its model waits for `streamer.go`, and fails with an item that is bad."""
    entered, go = threading.Semaphore(0), threading.Event()

    def predict(batch):
        entered.release()
        assert go.wait(LONG)
        if any(item.kind == "bad" for item in batch):
            raise ValueError("bad")
        return [item.kind for item in batch]

    with ThreadedStreamer(predict, 2, output=request.param) as streamer:
        streamer.entered, streamer.go = entered, go
        yield streamer
        go.set()


def test_a_future_that_is_kept_keeps_no_item(streamer):
    """It has ended in every way there is; those of several batches are among them."""
    kinds = [["good"], ["good"] * 5, ["bad"], ["good"] * 3 + ["bad"], ["cancelled"], ["late"]]
    batches = [list(map(Item, each)) for each in kinds]
    items = [weakref.ref(item) for batch in batches for item in batch]
    first = streamer.submit([Item("first")])
    assert streamer.entered.acquire(timeout=LONG)
    *futures, cancelled = map(streamer.submit, batches[:5])
    late = streamer.submit(batches.pop(), timeout=0.001)
    batches.clear()
    assert cancelled.cancel()
    with pytest.raises(RequestTimeout):
        late.result(LONG)
    streamer.go.set()
    assert first.result(LONG) == ["first"]
    assert [future.result(LONG) for future in futures[:2]] == [["good"], ["good"] * 5]
    for future in futures[2:]:
        with pytest.raises(ValueError, match="bad"):
            future.result(LONG)
        future.exception().__traceback__ = None  # of the model, which still has its batch

    def all_are_gone():
        gc.collect()
        return not any(item() for item in items)

    eventually(all_are_gone)
