"""An owner that is killed leaves nothing behind: no process, no file, no memory."""

import os
import subprocess
import sys

import pytest
from conftest import eventually
from process_models import is_alive

METHODS = ["spawn", "fork", "forkserver"]

OWNER = """
import os, signal, sys
sys.path.insert(0, {tests!r})
import numpy
from process_models import *
from service_streamer import *

if __name__ == "__main__":
    gate = ProcessGate({folder!r})
    streamer = Streamer(GatedSum(gate), 1, worker_num=2, mp_start_method={method!r})
    streamer.wait_ready(30)
    if {busy}:
        futures = [streamer.submit([numpy.ones(1_000_000)]) for _ in range(4)]
        gate.wait_entered()
    print(*[worker.pid for worker in streamer.stats().worker_processes], flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize("method", METHODS)
def test_a_killed_owner_takes_its_workers_along(tmp_path, method, busy):
    pytest.importorskip("numpy")
    shared = set(os.listdir("/dev/shm"))
    folder = tmp_path / "gate"
    folder.mkdir()
    file = tmp_path / "owner.py"
    tests = os.path.dirname(__file__)
    file.write_text(OWNER.format(tests=tests, folder=str(folder), method=method, busy=busy))
    with subprocess.Popen([sys.executable, file], stdout=subprocess.PIPE, text=True) as owner:
        workers = [int(pid) for pid in owner.stdout.readline().split()]
        assert len(workers) == 2
        assert all(map(is_alive, workers))
        owner.kill()
    eventually(lambda: not any(map(is_alive, workers)))
    assert set(os.listdir("/dev/shm")) <= shared
    assert sorted(os.listdir(tmp_path)) == ["gate", "owner.py"]
