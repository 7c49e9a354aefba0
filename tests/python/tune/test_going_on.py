"""What becomes of the trials of a search that has ended before its last one."""

import contextlib

import pytest

from service_streamer._commands.main import main
from service_streamer._commands.tune import tuning
from service_streamer._commands.tune.trial import ModelNotFoundError
from service_streamer.tune._rates import Point


class Steady:
    """A load that all settings bear."""

    def closed(self):
        return Point(16, 1000.0, 0.01, closed=True)

    def open(self, rate):
        return Point(rate, rate, 0.01, in_time=rate)


@pytest.fixture
def ends(monkeypatch):
    """How the trials end, one after the other: an exception, or None."""
    outcomes = []

    @contextlib.contextmanager
    def start(job, settings):
        if (error := outcomes.pop(0)) is not None:
            raise error
        yield Steady()

    monkeypatch.setattr(tuning, "TrialProcess", start)
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    return outcomes


@pytest.fixture
def search(tmp_path, capsys):
    """Runs the command; returns its exit code and its log."""
    (tmp_path / "items.json").write_text("[1]")

    def run():
        paths = ("--sample", str(tmp_path / "items.json"), "-o", str(tmp_path / "tuned.toml"))
        code = main(["tune", "app:model", "--slo-p99", "50ms", "--trials", "2", *paths])
        return code, capsys.readouterr().err

    return run


def test_a_model_that_is_broken_meanwhile_costs_no_trial(search, ends):
    ends += [None, ModelNotFoundError("app:model: SyntaxError")]
    code, log = search()
    assert code == 2
    assert "SyntaxError" in log
    ends += [None, None, None]
    code, log = search()
    assert code == 0, log
    assert "going on after 1 trials" in log


def test_another_content_of_the_sample_is_another_search(search, ends, tmp_path):
    ends += [None, KeyboardInterrupt()]
    assert search()[0] == 130
    (tmp_path / "items.json").write_text("[2]")
    code, log = search()
    assert code == 2
    assert "content of the sample" in log
    assert "remove it to begin again" in log
