"""Values of other packages as batches, items and outputs. A missing package is skipped."""

import pytest
from foreign_values import PACKAGES, kinds, model, plain
from waits import LONG

from service_streamer import Streamer, ThreadedStreamer

SIZES = (0, 1, 2, 65)  # the last one is joined from two batches
BATCH = 50


@pytest.fixture(params=PACKAGES)
def package(request):
    pytest.importorskip(request.param)
    return request.param


@pytest.fixture(params=["threads", "processes"])
def make(request):
    """Makes a streamer. Some of these packages must not be in a process that forks."""
    if request.param == "threads":
        return lambda predict, **options: ThreadedStreamer(predict, BATCH, **options)
    return lambda predict, **options: Streamer(predict, BATCH, **options)


def refused(wanted, ask):
    """Return what is wrong, if the request should fail."""
    try:
        return f"it is answered: {ask()}"
    except Exception as error:
        return "" if wanted in str(error) else repr(error)


def wrong_batch(streamer, value, wanted):
    if not wanted.isidentifier():
        return refused(wanted, lambda: streamer.predict(value))
    got = streamer.predict(value, timeout=LONG)
    return "" if got == [(wanted, plain(each)) for each in value] else str(got)


def wrong_item(streamer, value, n):
    got = streamer.predict([value] * n, timeout=LONG)
    return "" if got == [(type(value).__name__, plain(value))] * n else str(got)


def wrong_outputs(streamer, package, name, wanted, n, output):
    items = [(package, name, number) for number in range(1, n + 1)]
    if n == 0:
        return "" if streamer.predict([]) == [] else "an empty request has outputs"
    if not wanted.isidentifier():
        return refused(wanted, lambda: streamer.predict(items))
    got = streamer.predict(items, timeout=LONG)
    value = PACKAGES[package][name][0](range(1, n + 1))
    if output == "batch":
        return "" if type(got).__name__ == wanted and plain(got) == plain(value) else str(got)
    same = [type(each).__name__ for each in got] == [wanted] * n
    if wanted == "Scores":
        parts = [[plain(each.logits), plain(each.hidden[0])] for each in got]
        return "" if same and parts == [[row, row] for row in plain(value.logits)] else str(got)
    return "" if same and plain(got) == plain(list(value)) else str(got)


def test_a_batch_or_an_item_of_another_package_is_taken_as_it_is_or_refused(package, make):
    wrong = {}
    with make(kinds) as streamer:
        for name, (made, wanted, *_) in PACKAGES[package].items():
            for n in SIZES[1:]:
                value = made(range(1, n + 1))
                wrong[name, n, "batch"] = wrong_batch(streamer, value, wanted)
                if name != "LazyFrame":  # its numbers are not there yet
                    wrong[name, n, "item"] = wrong_item(streamer, value, n)
    assert {case: found for case, found in wrong.items() if found} == {}


@pytest.mark.parametrize("output", ["items", "batch"])
def test_outputs_of_another_package_are_the_same_at_every_size_or_refused(package, make, output):
    wrong = {}
    with make(model, output=output) as streamer:
        for name, (_, _, *wanted) in PACKAGES[package].items():
            for n in SIZES:
                wanted_here = wanted[output == "batch"]
                wrong[name, n] = wrong_outputs(streamer, package, name, wanted_here, n, output)
    assert {case: found for case, found in wrong.items() if found} == {}
