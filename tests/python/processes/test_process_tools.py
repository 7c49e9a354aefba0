"""Tools that look into a program work in a worker as in a process of multiprocessing."""

import os
import pstats

import pytest
from scripts import run_python

pytestmark = pytest.mark.endurance

METHODS = ["spawn", "fork", "forkserver"]

every_method = pytest.mark.parametrize("method", METHODS)

PROFILED = """
import cProfile, multiprocessing.util, sys
from service_streamer import ManagedModel, Streamer
from service_streamer._processes import pool

pool.GRACE = 60  # none is killed while it still writes

def helper(item):
    return 2 * item

class Profiled(ManagedModel):
    def init_model(self, path):
        self.profile = cProfile.Profile()
        multiprocessing.util.Finalize(None, self.profile.dump_stats, [path], exitpriority=1)
        self.profile.enable()

    def predict(self, batch):
        return [helper(item) for item in batch]

if __name__ == "__main__":
    path, method = sys.argv[1:]
    with Streamer(Profiled, 8, model_init_args=[path], mp_start_method=method) as streamer:
        assert streamer.predict([1, 2, 3]) == [2, 4, 6]
        assert streamer.predict([4]) == [8]
"""


@every_method
def test_a_model_under_cprofile(program, tmp_path, method):
    path = tmp_path / "profile"
    program(PROFILED, path, method)
    calls = {
        function: count
        for (file, _, function), (count, *_) in pstats.Stats(str(path)).stats.items()
        if os.path.basename(file) == "program.py"
    }
    assert (calls["predict"], calls["helper"]) == (2, 4)


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_coverage_measures_what_ran_in_workers(program, tmp_path, method):
    """With ``concurrency = multiprocessing``, which changes classes of multiprocessing."""
    pytest.importorskip("coverage")
    settings = tmp_path / "settings"
    settings.write_text(
        f"[run]\nconcurrency = multiprocessing,thread\nparallel = true\n"
        f"data_file = {tmp_path}/data\ninclude = */program.py\n"
    )
    file = tmp_path / "program.py"
    file.write_text(PROFILED)
    command = "import sys; from coverage.cmdline import main; sys.exit(main(sys.argv[1:]))"
    run_python(command, "run", f"--rcfile={settings}", file, os.devnull, method)
    run_python(command, "combine", f"--rcfile={settings}", tmp_path)
    report = run_python(command, "report", f"--rcfile={settings}", "--show-missing").stdout
    assert report.split()[-1] == "100%", report
