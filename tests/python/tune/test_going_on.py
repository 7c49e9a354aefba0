"""What becomes of the trials of a search that has ended before its last one."""

import contextlib

import pytest

from service_streamer._commands.main import main
from service_streamer._commands.tune import tuning
from service_streamer._commands.tune.search.rates import Point, TrialError
from service_streamer._commands.tune.search.space import NUMA
from service_streamer._commands.tune.trial import ModelNotFoundError
from service_streamer._placement.machine import Core


class Steady:
    """A load that all settings bear."""

    p99 = 0.01

    def closed(self):
        return Point(16, 1000.0, self.p99, closed=True)

    def open(self, rate):
        return Point(rate, rate, self.p99, in_time=rate)


class Disturbed(Steady):
    """A load on a machine that has something else to do."""

    p99 = 0.2


@pytest.fixture
def ends(monkeypatch):
    """How the trials end, one after the other: an exception, or None. Or their load."""
    outcomes = []

    @contextlib.contextmanager
    def start(job, settings):
        outcome = outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        yield outcome or Steady()

    monkeypatch.setattr(tuning, "TrialProcess", start)
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    return outcomes


@pytest.fixture
def search(tmp_path, capsys):
    """Runs the command; returns its exit code, and what it has printed."""
    (tmp_path / "items.json").write_text("[1]")

    def run():
        paths = ("--sample", str(tmp_path / "items.json"), "-o", str(tmp_path / "tuned.toml"))
        code = main(["tune", "app:model", "--slo-p99", "50ms", "--trials", "2", *paths])
        printed = capsys.readouterr()
        return code, printed.err + printed.out

    return run


def test_a_model_that_is_broken_meanwhile_costs_no_trial(search, ends):
    ends += [None, ModelNotFoundError("app:model: SyntaxError")]
    code, log = search()
    assert code == 2
    assert "SyntaxError" in log
    ends += [None, None, None]
    code, log = search()
    assert code == 0, log
    assert "going on after 1 trial," in log


def test_another_content_of_the_sample_is_another_search(search, ends, tmp_path):
    ends += [None, KeyboardInterrupt()]
    assert search()[0] == 130
    (tmp_path / "items.json").write_text("[2]")
    code, log = search()
    assert code == 2
    assert "content of the sample" in log
    assert "remove it to begin again" in log


@pytest.mark.parametrize(("nodes", "is_tried"), [((0, 0), False), ((0, 1), True)])
def test_numa_is_tried_only_if_there_are_several_nodes(
    search, ends, monkeypatch, tmp_path, nodes, is_tried
):
    cores = [Core((cpu,), node) for cpu, node in enumerate(nodes)]
    monkeypatch.setattr(tuning, "usable_cores", lambda: cores)
    monkeypatch.setattr(tuning, "cpu_count", lambda: len(cores))
    ends += [None, KeyboardInterrupt()]
    assert search()[0] == 130
    assert (f'"{NUMA}"' in (tmp_path / "tuned.toml.journal").read_text()) == is_tried


@pytest.mark.parametrize(
    ("second", "code", "message"),
    [
        (TrialError("no memory"), 1, "the best trials failed the second time: no memory"),
        (Disturbed(), 3, "No settings keep a p99 of 50 ms the second time: above is the lowest"),
    ],
)
def test_trials_that_kept_the_target_are_kept_if_the_second_measurement_fails(
    search, ends, tmp_path, second, code, message
):
    ends += [None, None, second, second]
    ended, printed = search()
    assert ended == code
    assert message in printed
    assert "the same command measures the best again" in printed
    ends += [None, None]
    ended, printed = search()
    assert ended == 0, printed
    assert "going on after 2 trials" in printed
    assert not (tmp_path / "tuned.toml.journal").exists()


def test_if_no_trial_has_kept_the_target_the_next_search_begins_again(search, ends, tmp_path):
    ends += [Disturbed(), Disturbed()]
    code, printed = search()
    assert code == 3
    assert "No settings keep a p99 of 50 ms: above is the lowest that was found." in printed
    assert not (tmp_path / "tuned.toml.journal").exists()
