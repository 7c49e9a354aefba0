"""How items travel: pickled, large buffers in shared memory, and back as something of one's own."""

import math
import pickle
import struct
import threading

import numpy as np
import pytest
from descriptors import open_descriptors
from hypothesis import given
from hypothesis import strategies as st
from travelling import LARGE, travel

from service_streamer import SerializationError

pytestmark = pytest.mark.every_python

# ------------------------------------------------------------------------ values


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        255,
        256,
        -1,
        2**31 - 1,
        -(2**31),
        2**31,
        2**63 - 1,
        -(2**63),
        2**63,
        10**300,
        0.1,
        math.inf,
        -0.0,
        "",
        "text",
        "x" * 255,
        "x" * 256,
        "x" * 4097,
        "x" * 1_000_000,
        "grün",
        "\udc80 alone",
        b"",
        bytes(range(256)),
        b"x" * 5000,
        b"x" * 1_000_000,
        bytearray(b"changeable"),
        (),
        (1, "two", [3]),
        [],
        [1, "two", 3.0, None, b"five", True],
        ["grün", 1],
        [[1], [2]],
        ["x" * 1000] * 50,
        {"a": 1, "b": [2]},
        {1, 2},
        1 + 2j,
        range(3),
        struct.Struct,
    ],
    ids=lambda value: f"{type(value).__name__}-{str(value)[:12]!a}",
)
def test_a_value_arrives_as_it_was(value):
    (seen,) = travel(value)
    assert type(seen) is type(value)
    assert seen == value
    assert repr(seen) == repr(value)  # distinguishes -0.0 from 0.0, and True from 1


def test_what_is_not_a_number_arrives_as_that():
    assert math.isnan(travel(math.nan)[0])


plain = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
)
values = st.recursive(
    plain, lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(plain, inner)
)


@pytest.mark.slow
@given(st.lists(values, max_size=5))
def test_any_items_arrive_in_order(items):
    seen = travel(*items)
    assert seen == items
    assert repr(seen) == repr(items)  # the types of all that is in them, too


def test_subclasses_of_plain_types_stay_what_they_are():
    class_of_int, class_of_list = type(travel(Count(3))[0]), type(travel(Names(["a"]))[0])
    assert (class_of_int, class_of_list) == (Count, Names)


class Count(int):
    pass


class Names(list):
    pass


def test_one_object_that_comes_twice_in_an_item_stays_one():
    inner = ["x"]
    ((first, second),) = travel((inner, inner))
    assert first is second


def test_an_item_that_contains_itself_arrives():
    item = []
    item.append(item)
    (seen,) = travel(item)
    assert seen[0] is seen


# -------------------------------------------------------------------------- faults


class Unpicklable:
    def __init__(self, error):
        self.error = error

    def __reduce__(self):
        raise self.error


@pytest.mark.parametrize(
    "error", [TypeError("no"), ValueError("bad"), RecursionError("deep"), pickle.PicklingError("x")]
)
def test_an_item_that_cannot_be_pickled_is_named(error):
    with pytest.raises(SerializationError, match=r"item 2 .*test_codec\.Unpicklable") as caught:
        travel("a", "b", Unpicklable(error), "d")
    assert type(error).__name__ in str(caught.value)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("item", [lambda: 0, threading.Lock(), (i for i in range(3))])
def test_what_pickle_refuses_is_named(item):
    with pytest.raises(SerializationError, match="item 0"):
        travel(item)


def test_an_item_that_is_nested_too_deeply_is_refused():
    item = []
    for _ in range(100_000):
        item = [item]
    with pytest.raises(SerializationError, match="RecursionError"):
        travel(item)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), MemoryError()])
def test_errors_that_are_not_the_items_are_raised_unchanged(error):
    with pytest.raises(type(error)):
        travel(Unpicklable(error))


def test_an_item_that_cannot_be_pickled_leaves_no_memory_behind():
    travel(np.zeros(LARGE))
    before = open_descriptors()
    for _ in range(20):
        with pytest.raises(SerializationError):
            travel([np.zeros(LARGE)] * 3 + [lambda: 0])
        with pytest.raises(SerializationError):
            travel(np.zeros(LARGE), np.ones(LARGE), lambda: 0)
    travel(np.zeros(LARGE))
    assert open_descriptors() <= before + 3


class Unloadable:
    def __reduce__(self):
        return _refuse, ()


def _refuse():
    raise RuntimeError("not here")


def test_an_item_that_cannot_be_unpickled_raises_what_it_raised():
    with pytest.raises(RuntimeError, match="not here"):
        travel(Unloadable())
    with pytest.raises(RuntimeError, match="not here"):
        travel([np.zeros(LARGE), Unloadable()])


class Nested:
    """Sends others off while it is pickled itself."""

    def __reduce__(self):
        return tuple, (travel("inner", np.arange(LARGE)),)


def test_an_item_may_send_others_while_it_is_pickled():
    before, (text, array), after = travel("before", Nested(), "after")
    assert (before, text, after) == ("before", "inner", "after")
    assert np.array_equal(array, np.arange(LARGE))


def test_threads_can_pickle_at_the_same_time(threads):
    def send_often(number):
        for _ in range(20):
            small, large, other = travel(number, np.full(300_000, number), [number] * 100)
            assert small == number
            assert other == [number] * 100
            assert large.min() == large.max() == number

    for number in range(8):
        threads.run(send_often, number)
    assert threads.join() == [None] * 8


def test_without_descriptors_large_items_travel_all_the_same(child):
    child(
        """
        import resource
        import numpy as np
        from service_streamer import _core

        resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
        arrays = tuple(np.full(100_000, i) for i in range(100))
        (seen,) = _core._travel(arrays, 1)
        assert [array[0] for array in seen] == list(range(100))
        assert all(array.flags.writeable for array in seen)
        """
    )


def test_a_forked_child_packs_on_its_own(child):
    child(
        """
        import os
        import numpy as np
        import service_streamer
        from service_streamer import _core

        service_streamer.ThreadedStreamer(len, 8)  # knows of forks
        (mine,) = _core._travel((np.arange(100_000),), 1)[0]
        pid = os.fork()
        if pid == 0:
            assert mine.sum() == np.arange(100_000).sum()
            mine[:] = 0
            for i in range(50):
                (seen,) = _core._travel((np.full(100_000, i),), 1)[0]
                assert seen.min() == seen.max() == i
            del mine, seen
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert mine.sum() == np.arange(100_000).sum()
        """
    )
