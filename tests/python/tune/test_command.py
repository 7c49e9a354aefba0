"""`service-streamer tune` with real trials: what it writes, its exit codes, and interrupts."""

import os
import select
import signal
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from scripts import SUPPORT
from waits import LONG, eventually

from service_streamer._commands.main import main

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytest_plugins = ["commands"]

FAST = ("--seconds", "0.05", "--max-batch-size", "4", "--max-workers", "1", "--trials", "2")


@pytest.fixture
def sample(tmp_path):
    path = tmp_path / "items.json"
    path.write_text("[1, 2, 3]")
    return str(path)


@pytest.fixture
def tune(sample, tmp_path, capsys, monkeypatch):
    """Runs the command; returns its exit code and what it has printed."""
    monkeypatch.chdir(SUPPORT)  # where trials find the models

    def run(model, slo, *arguments, sample=sample):
        output = str(tmp_path / "tuned.toml")
        options = ("--sample", sample, "--slo-p99", slo, "-o", output, *FAST, *arguments)
        code = main(["tune", f"tune_models:{model}", *options])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    handler = signal.getsignal(signal.SIGTERM)
    yield run
    signal.signal(signal.SIGTERM, handler)


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_options_and_their_origin_are_written_after_a_trial_that_died(
    tune, tmp_path, tmp_path_factory, monkeypatch
):
    monkeypatch.setenv("TUNE_DEATHS", str(tmp_path_factory.mktemp("deaths") / "death"))
    code, out, err = tune("dying_once", "2s")
    assert code == 0, err
    assert "requests/s" in out
    died, _, rest = err.partition("trial 2 of 2: batch_size=")
    assert "failed: its process was killed by SIGKILL" in died
    assert "requests/s" in rest
    assert files(tmp_path) == ["items.json", "tuned.svg", "tuned.toml"]
    written = tomllib.loads((tmp_path / "tuned.toml").read_text())
    assert {"batch_size", "worker_num", "policy"} <= written["options"].keys()
    assert written["tuned"]["model"] == "tune_models:dying_once"
    assert written["tuned"]["slo_p99"] == 2
    assert written["tuned"]["p99"] <= 2
    assert written["tuned"]["throughput"] > 0
    assert ElementTree.parse(tmp_path / "tuned.svg").getroot().tag.endswith("svg")


def test_if_nothing_reaches_the_target_the_best_is_shown(tune, tmp_path):
    code, out, _ = tune("slow", "1ms", "--trials", "1")
    assert code == 3
    assert "No settings keep a p99 of 1 ms: above is the lowest that was found." in out
    assert "adaptive" in out
    assert files(tmp_path) == ["items.json"]


def test_if_all_trials_fail_the_first_reason_is_reported(tune, tmp_path):
    code, _, err = tune("refusing", "50ms")
    assert code == 1
    assert err.splitlines()[-1] == (
        "service-streamer: all 2 trials failed: ValueError: no model for 1"
    )
    assert files(tmp_path) == ["items.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file"),
        ("[1, 2", "is not JSON"),
        ('{"a": 1}', "not a dict"),
        ("[]", "not an empty list"),
    ],
)
def test_a_wrong_sample_is_refused(tune, tmp_path, text, message):
    path = tmp_path / "wrong.json"
    if text is not None:
        path.write_text(text)
    code, _, err = tune("fast", "50ms", sample=str(path))
    assert code == 2
    assert message in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no_such_model", "50ms"], "tune_models:no_such_model: module 'tune_models' has no"),
        (["fast", "50ms", "--trials", "0"], "--trials must be at least 1, not 0"),
        (["fast", "50ms", "--seconds", "0"], "--seconds must be a number above 0, not 0"),
        (["fast", "50ms", "--seconds", "nan"], "--seconds must be a number above 0, not nan"),
        (["fast", "50ms", "--start-timeout", "inf"], "--start-timeout must be a number above 0"),
        (["fast", "50ms", "--native", "none.pt2"], "--native: none.pt2 does not exist"),
        (["fast", "50ms", "-o", "/no/such/folder/x.toml"], "-o: /no/such/folder does not exist"),
        (["fast", "50ms", "-o", "/tmp"], "-o: /tmp is a folder"),
        (["fast", "50ms", "-o", "x.svg"], "-o: x.svg would be the name of the plot"),
    ],
)
def test_a_wrong_call_is_refused(tune, tmp_path, arguments, message):
    code, _, err = tune(*arguments)
    assert code == 2
    assert message in err
    assert files(tmp_path) == ["items.json"]


@pytest.mark.parametrize("slo", ["fast", "-5ms", "0", "50m"])
def test_a_target_that_is_no_time_is_refused(tune, capsys, slo):
    with pytest.raises(SystemExit):
        tune("fast", f"={slo}" if slo.startswith("-") else slo)
    assert "--slo-p99" in capsys.readouterr().err


def process_of_trial(command):
    """A descriptor of the process that a command has started, readable when it has ended."""
    children = Path(f"/proc/{command}/task/{command}/children")
    eventually(children.read_text)
    return os.pidfd_open(int(children.read_text().split()[0]))


@pytest.mark.slow
def test_a_signal_ends_a_run_and_its_process_and_keeps_the_trials(services, sample, tmp_path):
    output = tmp_path / "tuned.toml"
    command = ("tune", "tune_models:fast", "--sample", sample, "--slo-p99", "2s", "-o", str(output))

    def end(line, number):
        """Start the command, and end it with a signal when it has written a line."""
        running = services(*command, *FAST)
        running.line(line)
        trial = process_of_trial(running.process.pid)
        running.signal(number)
        code = running.wait()
        assert select.select([trial], [], [], LONG)[0], "the process of the trial goes on"
        os.close(trial)
        return code, running.process.stderr.read()

    code, rest = end("trial 1 of 2", signal.SIGINT)
    assert code == 130
    assert f"interrupted after 1 of 2 trials: {output} has the best so far" in rest
    assert "batch_size" in tomllib.loads(output.read_text())["options"]
    code, _ = end("going on after 1 trial,", signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert os.path.exists(f"{output}.journal")
