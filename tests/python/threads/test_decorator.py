"""@batched: a predict function that is called with one item."""

import functools
import inspect
import pickle

import pytest
from making import made_by
from waits import eventually

from service_streamer import Streamer, ThreadedStreamer, batched


@batched(batch_size=8)  # never called, so it starts no thread
def upper(texts):
    """Make capitals."""
    return [text.upper() for text in texts]


@pytest.fixture
def decorate():
    """`batched`, whose streamers are closed after the test."""
    yield from made_by(lambda function, *args, **options: batched(*args, **options)(function))


def test_a_call_takes_one_item_and_returns_its_output(decorate, run):
    double = decorate(lambda items: [2 * item for item in items], batch_size=8)
    assert double(1, timeout=5, priority=1, tenant="acme") == 2
    assert run(double.apredict_one("a")) == "aa"


@pytest.mark.in_process
def test_calls_at_the_same_time_share_a_batch(decorate, gate, threads):
    double = decorate(gate, batch_size=8)
    threads.run(double, 1)
    gate.wait_entered()
    threads.run(double, 2)
    threads.run(double, 3)
    eventually(lambda: double.stats().queued_items == 2)
    gate.open()
    assert sorted(threads.join()) == [2, 4, 6]
    assert double.stats().batch_sizes[2] == 1


def test_the_streamer_has_the_options(decorate):
    function = decorate(list, 4, 0.05, 3, policy="greedy", max_queue=7)
    assert (function.predict([1, 2]), function([3])) == ([1, 2], [3])
    shown = repr(function)
    assert "batch_size=4, max_latency=0.05, policy='greedy'" in shown
    assert (function._options.worker_timeout, function._options.max_queue) == (3, 7)


def test_it_is_named_and_documented_as_the_function():
    assert (upper.__name__, upper.__doc__) == ("upper", "Make capitals.")
    assert upper.__module__ == __name__
    assert inspect.isfunction(upper.__wrapped__)
    assert upper.__wrapped__(["a"]) == ["A"]


def test_a_generator_function_streams(decorate):
    def spell(texts):
        yield from zip(*texts, strict=True)

    letters = decorate(spell, 1)
    assert letters("ab") == ["a", "b"]
    assert list(letters.stream("ab")) == ["a", "b"]


def test_it_is_pickled_by_its_name(decorate):
    assert pickle.loads(pickle.dumps(upper)) is upper
    with pytest.raises(pickle.PicklingError, match="not the same object"):
        pickle.dumps(decorate(len, 8))
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(decorate(functools.partial(map, str), 8))  # has no name


def test_a_batched_function_is_not_a_model():
    for streamer in (ThreadedStreamer, Streamer):
        with pytest.raises(TypeError, match=r"not a streamer: <BatchedFunction\(upper\)"):
            streamer(upper, 8)


def test_parentheses_are_needed():
    with pytest.raises(ValueError, match="batch_size must be an int of at least 1, not <function"):

        @batched
        def forgotten(items):
            return items


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 8, "policy": "eager"}, "'eager'"),
        ({"batch_size": 8, "output": "batch"}, "output='batch'"),
    ],
)
def test_a_wrong_option_raises_where_it_is_written(options, error):
    with pytest.raises((TypeError, ValueError), match=error):
        batched(**options)(list)


def test_a_function_of_the_module_is_no_method():
    class Service:
        shared = upper

    assert Service.shared is Service().shared is upper


@pytest.mark.every_python
def test_a_module_with_one_forks_and_ends(program):
    done = program(
        """
        import os, threading, warnings
        from service_streamer import batched

        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads

        @batched(batch_size=8)
        def double(items):
            return [2 * item for item in items]

        assert threading.active_count() == 1  # the first call starts the worker
        assert double(1) == 2
        pid = os.fork()
        assert double(2) == 4
        if pid == 0:
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        print(double.stats().completed)
        """
    )
    assert done.stdout == "2\n"
