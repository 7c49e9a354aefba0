"""Step models that raise, or return what does not fit."""

import pytest
from step_models import Choosy, Countdown, down
from waits import LONG, eventually

from service_streamer import OutputSizeMismatch, WorkerLost

pytest_plugins = ["step_fixtures"]


def outcomes(streamer, items):
    """The results of requests that are live together; what a request raised is its result."""
    futures = [streamer.submit([item]) for item in items]
    return [future.exception(LONG) or future.result() for future in futures]


@pytest.mark.parametrize("choice", ["bad_to_admit", "bad_to_step"])
def test_only_the_guilty_items_fail(step_streamers, choice):
    items = list(range(1, 17))
    streamer = step_streamers(Choosy(**{choice: [5, 11]}), batch_size=16)
    for item, outcome in zip(items, outcomes(streamer, items), strict=True):
        if item in (5, 11):
            assert isinstance(outcome, ValueError)
        else:
            assert outcome == [down(item)]


@pytest.mark.parametrize("choice", ["bad_to_admit", "bad_to_step"])
def test_what_has_failed_is_dropped_if_it_was_admitted(step_streamers, choice):
    model = Choosy(**{choice: [2]})
    outcomes(step_streamers(model), [1, 2, 3])
    admitted = [1, 3] if choice == "bad_to_admit" else [1, 2, 3]
    eventually(lambda: sorted(model.dropped) == admitted)


def test_a_request_fails_with_its_guilty_item(step_streamers):
    streamer = step_streamers(Choosy(bad_to_step=[2]))
    with pytest.raises(ValueError):
        streamer.predict([3, 2, 1])
    assert streamer.predict([3, 1]) == [[3, 2, 1], [1]]


def test_an_exit_is_a_lost_worker(step_streamers):
    streamer = step_streamers(Choosy(bad_to_step=[2], error=SystemExit))
    first, second = outcomes(streamer, [2, 3])
    assert isinstance(first, WorkerLost)
    assert second == [down(3)]


class Wrong(Countdown):
    """Returns too few results once a step has two items or more."""

    def step(self, states):
        results = super().step(states)
        return results if len(states) < 2 else results[1:]


def test_too_few_results_fail_all_live_items(step_streamers):
    model = Wrong()
    streamer = step_streamers(model)
    with pytest.raises(OutputSizeMismatch, match="3 items and returned 2 outputs"):
        streamer.predict([3, 4, 5])
    eventually(lambda: sorted(model.dropped) == [3, 4, 5])
    assert streamer.predict([2]) == [[2, 1]]


@pytest.mark.parametrize("states", [[], [1, 2], None])
def test_wrong_number_of_states(step_streamers, states):
    class Odd(Countdown):
        def admit(self, items):
            return states

    with pytest.raises(OutputSizeMismatch, match="admit"):
        step_streamers(Odd()).predict([1])


def test_without_isolation_all_live_items_fail(step_streamers):
    streamer = step_streamers(Choosy(bad_to_step=[2]), isolate_errors=False)
    with pytest.raises(ValueError):
        streamer.predict([2, 3])


@pytest.mark.parametrize("result", [None, 7, (1, 2, 3)])
def test_a_result_that_is_no_pair(step_streamers, result):
    class Odd(Countdown):
        def step(self, states):
            return [result] * len(states)

    with pytest.raises(TypeError, match="pairs"):
        step_streamers(Odd()).predict([1])


def test_an_exception_as_output_ends_its_item_only(step_streamers):
    class Odd(Countdown):
        def step(self, states):
            pairs = super().step(states)
            return [(KeyError("no two") if out == 2 else out, done) for out, done in pairs]

    model = Odd()
    streamer = step_streamers(model)
    with pytest.raises(KeyError, match="no two"):
        streamer.predict([3])
    assert streamer.predict([1]) == [[1]]
    eventually(lambda: model.dropped == [3, 1])


def test_an_exception_in_drop_is_logged(step_streamers, caplog):
    class Odd(Countdown):
        def drop(self, states):
            raise ValueError("not dropped")

    streamer = step_streamers(Odd())
    assert streamer.predict([2]) == [[2, 1]]
    eventually(lambda: "drop() raised" in caplog.text)
    assert streamer.predict([1]) == [[1]]


def test_a_truth_value_that_raises_does_not_end_the_thread(step_streamers):
    class Odd:
        def __bool__(self):
            raise ValueError("neither")

    class Strange(Countdown):
        def step(self, states):
            return [(1, Odd() if item == 2 else True) for item, _ in states]

    streamer = step_streamers(Strange())
    with pytest.raises(WorkerLost):
        streamer.predict([2])
    assert streamer.predict([1]) == [[1]]
