"""The steps of `make first-gpu-hour`, with commands that need no GPU."""

import json
import os
import runpy
import string
from pathlib import Path

import pytest

TOOL = runpy.run_path(str(Path(__file__).parents[3] / "tests/tools/first_gpu_hour.py"))


@pytest.fixture
def steps(tmp_path):
    """A step that fails, one that hangs with a child, one that cannot run, one that passes."""
    note = f"echo {{name}} >>{tmp_path}/ran; "
    commands = {
        "fails": "echo wrong; exit 3",
        "hangs": "sleep 1000 & wait",
        "absent": "echo 'left out: no GPU'; exit 77",
        "passes": "echo right",
    }
    return tuple(
        TOOL["Step"](name, "…", note.replace("{name}", name) + command, 2 if name == "hangs" else 60)
        for name, command in commands.items()
    )


def test_steps_that_fail_or_hang_do_not_stop_the_others_and_a_second_call_resumes(steps, tmp_path):
    def hour(steps, again=()):
        status = TOOL["hour"](steps, tmp_path / "report", dict(os.environ), list(again))
        ran = (tmp_path / "ran").read_text().split()
        (tmp_path / "ran").write_text("")
        return status, ran

    assert hour(steps[:2]) == (1, ["fails", "hangs"])
    assert hour(steps) == (1, ["absent", "passes"])
    assert hour(steps, ["fails"]) == (1, ["fails"])
    assert hour(steps[2:]) == (0, [])
    parts = [json.loads((tmp_path / f"report/{step.name}.json").read_text()) for step in steps]
    assert [part["outcome"] for part in parts] == [
        *("failed", "ended after 2 s", "left out", "passed")
    ]
    assert parts[0]["output"] == "wrong\n"


def test_the_report_has_the_steps_that_have_ended(steps, tmp_path):
    TOOL["hour"]((steps[0], steps[3]), tmp_path / "report", dict(os.environ), [])
    report = (tmp_path / "report/report.md").read_text()
    assert "| fails | failed |" in report
    assert "\nright\n```" in report


def test_each_step_ends_within_eight_minutes_and_its_command_has_all_its_parts():
    for step in TOOL["STEPS"]:
        assert step.limit <= 480
        fields = {name for _, name, _, _ in string.Formatter().parse(step.command) if name}
        assert fields <= {"python", "plugin", "only_real", "simulation"}
