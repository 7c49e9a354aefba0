"""The process of a trial."""

import os
import select
from pathlib import Path

import pytest
from scripts import SUPPORT

from service_streamer._commands.tune.process import TrialProcess
from service_streamer._commands.tune.search.space import Settings
from service_streamer._commands.tune.trial import Job


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.chdir(SUPPORT)  # where trials find the models
    sample = tmp_path / "items.json"
    sample.write_text("[1]")

    def make(model, slo):
        return Job(model=f"tune_models:{model}", sample=str(sample), slo=slo, seconds=0.05)

    return make


def workers_of(trial):
    """Descriptors of the processes that a trial has started; readable when they have ended."""
    tasks = Path(f"/proc/{trial._process.pid}/task").iterdir()
    children = {each for task in tasks for each in (task / "children").read_text().split()}
    return [os.pidfd_open(int(each)) for each in children]


def test_the_workers_of_a_trial_have_ended_when_it_has(job):
    with TrialProcess(job("Large", slo=1.0), Settings(1, 1, 1, "greedy", None)) as trial:
        workers = workers_of(trial)
    assert workers
    ended, _, _ = select.select(workers, [], [], 0)
    for worker in workers:
        os.close(worker)
    assert len(ended) == len(workers)


def test_a_request_that_misses_a_long_target_is_late_and_no_error(job):
    assert job("fast", slo=30.0).timeout > 30.0
