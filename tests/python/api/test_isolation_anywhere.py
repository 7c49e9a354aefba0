"""No innocent caller gets the exception of another, wherever the model runs."""

import pytest
from waits import LONG

from service_streamer import WorkerLost


class Poison(int):
    """An item that the model refuses."""


def model(batch):
    bad = [item for item in batch if isinstance(item, Poison)]
    if bad:
        raise ValueError(bad)
    return batch


def exit_with(kind):
    raise kind(3)


class Exits:
    """An item that ends its worker when it is unpickled there."""

    def __init__(self, kind):
        self.kind = kind

    def __reduce__(self):
        return exit_with, (self.kind,)


@pytest.mark.outside
@pytest.mark.parametrize("budget", [0, 8])
@pytest.mark.parametrize("k", [1, 5, 16])
def test_only_the_guilty_fail_each_with_its_own_exception(streamers, k, budget):
    streamer = streamers(model, batch_size=32, isolation_budget=budget)
    poison = {i * 32 // k for i in range(k)}
    futures = [streamer.submit([Poison(i) if i in poison else i]) for i in range(32)]
    for i, future in enumerate(futures):
        if i in poison:
            with pytest.raises(ValueError) as caught:
                future.result(LONG)
            assert caught.value.args == ([i],)
        else:
            assert future.result(LONG) == [i]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, ValueError])
def test_an_item_that_exits_when_it_is_unpickled_hurts_its_own_caller_only(
    streamers, backend, kind
):
    if backend == "threads":
        pytest.skip("nothing is unpickled there")
    streamer = streamers(lambda batch: batch, batch_size=32)
    futures = [streamer.submit([i]) for i in range(10)]
    bad = streamer.submit([1, Exits(kind), 3])
    futures += [streamer.submit([i]) for i in range(10, 20)]
    error = bad.exception(LONG)
    assert isinstance(error, WorkerLost) == (kind is not ValueError)
    assert kind.__name__ in str(error)
    assert [future.result(LONG) for future in futures] == [[i] for i in range(20)]
    assert streamer.predict(["next"]) == ["next"], "the worker goes on"
