"""The steps of `make first-gpu-hour`, with commands that need no GPU."""

import json
import os
import runpy
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from waits import LONG, eventually

pytestmark = pytest.mark.slow

FILE = Path(__file__).parents[3] / "tests/tools/first_gpu_hour.py"
TOOL = runpy.run_path(str(FILE))

# In a process of its own, for the tool ends all children that its process has adopted.
CALL = """
import json, os, pathlib, runpy, sys
tool = runpy.run_path(sys.argv[1])
steps = [tool["Step"](*step) for step in json.loads(sys.argv[3])]
again, seconds = json.loads(sys.argv[4])
sys.exit(tool["hour"](steps, pathlib.Path(sys.argv[2]), dict(os.environ), again, seconds))
"""
# Under a name that is not UTF-8.
HANGS = r"echo so far; printf '\377' >/proc/self/comm; setsid sleep 1000 & echo $! >pid; wait"


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """Begins a call of the tool, with commands for its steps."""
    monkeypatch.setenv("FOLDER", str(tmp_path))
    begun = []

    def begin(again=(), seconds=LONG, limit=LONG, **commands):
        steps = [
            (name, "…", f"cd $FOLDER; echo {name} >>ran; {command}", limit)
            for name, command in commands.items()
        ]
        given = json.dumps(steps), json.dumps([again, seconds])
        command = [sys.executable, "-c", CALL, FILE, tmp_path / "report", *given]
        begun.append(subprocess.Popen(command))
        return begun[-1]

    yield begin
    for process in begun:
        process.terminate()
        process.wait(LONG)


@pytest.fixture
def call(begin, tmp_path):
    """Makes a call; returns its status and the steps that ran."""

    def call(*args, **options):
        (tmp_path / "ran").write_text("")
        return begin(*args, **options).wait(LONG), (tmp_path / "ran").read_text().split()

    return call


@pytest.fixture
def outcomes(tmp_path):
    def outcomes():
        results = json.loads((tmp_path / "report/results.json").read_text())
        return {name: (step["outcome"], step["output"]) for name, step in results.items()}

    return outcomes


def is_gone(pid):
    return not Path(f"/proc/{pid}").exists()


def test_steps_that_fail_or_hang_do_not_stop_the_others_and_a_second_call_goes_on(
    call, outcomes, tmp_path
):
    first = {"fails": "echo wrong; exit 3", "hangs": HANGS}
    steps = {**first, "absent": "echo no GPU; exit 77", "passes": "echo right"}
    assert call(**first, limit=3) == (1, ["fails", "hangs"])
    assert is_gone(int((tmp_path / "pid").read_text()))
    assert call(**steps) == (1, ["absent", "passes"])
    assert call(["passes"], **steps) == (1, ["passes"])
    assert call(["failed"], **{**steps, "hangs": "true"}) == (1, ["fails", "hangs"])
    assert call(["failed"], **{**steps, "fails": "true", "hangs": "true"}) == (0, ["fails"])
    assert outcomes() == {
        "fails": ("passed", ""),
        "hangs": ("passed", ""),
        "absent": ("left out", "no GPU\n"),
        "passes": ("passed", "right\n"),
    }


def test_the_report_has_the_output_of_a_step_that_was_ended(call, tmp_path):
    call(hangs=HANGS, limit=1)
    report = (tmp_path / "report/report.md").read_text()
    assert "| hangs | ended after 1 s |" in report
    assert "\nso far\n```" in report


def test_a_step_that_a_call_has_too_little_time_for_begins_anew_in_the_next(call, outcomes):
    steps = {"passes": "true", "hangs": HANGS, "last": "true"}
    assert call(seconds=3, **steps) == (1, ["passes", "hangs"])
    assert outcomes()["hangs"] == ("not ended", "so far\n")
    assert outcomes()["last"] == ("not ended", "")
    assert call(seconds=1, **steps) == (1, ["hangs"])
    assert outcomes()["hangs"][0] == "ended after 1 s"
    assert call(**steps) == (1, ["last"])


def test_a_call_that_is_ended_leaves_no_process_and_its_step_begins_anew(
    begin, call, outcomes, tmp_path
):
    process = begin(hangs=HANGS)
    eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    process.send_signal(signal.SIGTERM)
    assert process.wait(LONG) == 1
    assert is_gone(int((tmp_path / "pid").read_text()))
    assert outcomes()["hangs"][0] == "not ended"
    assert call(hangs="true") == (0, ["hangs"])


@pytest.mark.parametrize("rehearse", [False, True])
def test_each_step_ends_within_eight_minutes_and_the_shell_can_read_it(rehearse, tmp_path):
    for step in TOOL["steps"](tmp_path / "a folder", rehearse):
        assert 0 < step.limit <= 480
        subprocess.run(["sh", "-n", "-c", step.command], check=True)


def test_an_environment_for_make_is_there_where_the_package_is_installed(tmp_path, monkeypatch):
    folder = tmp_path / "a folder"
    monkeypatch.setenv("PATH", sysconfig.get_path("scripts"), prepend=os.pathsep)
    (install,) = (step for step in TOOL["steps"](folder, False) if step.name == "install")
    subprocess.run(install.command, shell=True, check=True)
    assert {path.name for path in folder.glob("bin/*")} == {"cmake", "ctest", "ninja"}


@pytest.mark.parametrize(("cuda", "has_cuda"), [("'13.0'", True), ("None", False)])
def test_a_rehearsal_knows_a_torch_with_cuda(cuda, has_cuda, tmp_path, monkeypatch):
    monkeypatch.setitem(TOOL["has_cuda"].__globals__, "ROOT", tmp_path)
    folder = tmp_path / "build/torch/torch"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "version.py").write_text(f"cuda: Optional[str] = {cuda}\n")
    assert TOOL["has_cuda"]() is has_cuda
