"""An owner that is killed leaves nothing behind: no process, no file, no memory."""

import contextlib
import glob
import os
import subprocess
import sys
import tempfile

import pytest
from process_models import files_in_shared_memory, is_alive
from scripts import SUPPORT
from waits import eventually

pytestmark = pytest.mark.slow

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


def memfds(*pids):
    """Tell which shared memory these processes have, or all processes."""
    found = set()
    for pid in pids or ["[0-9]*"]:
        for fd in glob.glob(f"/proc/{pid}/fd/*"):
            with contextlib.suppress(OSError):  # it is closed by now
                if os.readlink(fd).startswith("/memfd:"):
                    file = os.stat(fd)
                    found.add((file.st_dev, file.st_ino))
    return found


@pytest.fixture
def temporary():
    """A folder for temporary files; not below tmp_path: a socket's name must be short."""
    with tempfile.TemporaryDirectory() as folder:
        yield folder


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize("method", METHODS)
def test_a_killed_owner_takes_its_workers_along(tmp_path, temporary, method, busy):
    pytest.importorskip("numpy")
    shared = files_in_shared_memory()
    folder = tmp_path / "gate"
    folder.mkdir()
    file = tmp_path / "owner.py"
    file.write_text(OWNER.format(tests=SUPPORT, folder=str(folder), method=method, busy=busy))
    environment = os.environ | {"TMPDIR": temporary}
    with subprocess.Popen(
        [sys.executable, file], stdout=subprocess.PIPE, text=True, env=environment
    ) as owner:
        workers = [int(pid) for pid in owner.stdout.readline().split()]
        assert len(workers) == 2
        assert all(map(is_alive, workers))
        memory = memfds(owner.pid, *workers)
        assert bool(memory) == busy
        owner.kill()
    eventually(lambda: not any(map(is_alive, workers)))
    eventually(lambda: os.listdir(temporary) == [])
    assert not memory & memfds()
    eventually(lambda: files_in_shared_memory() <= shared)  # those of tests beside this one go
    assert sorted(os.listdir(tmp_path)) == ["gate", "owner.py"]
