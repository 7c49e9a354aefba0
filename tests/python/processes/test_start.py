"""Starting processes, where the system has no more to give."""

import pytest
from scripts import SUPPORT

from service_streamer._processes.start import START_METHODS

pytestmark = [pytest.mark.every_python, pytest.mark.slow]

UNWATCHED = """
import errno, os, sys
sys.path.insert(0, sys.argv[1])
import pytest
from process_models import double
from service_streamer._model import check_model, pack
from service_streamer._processes.start import Starter, Version

pids = []

def refuse(pid):
    pids.append(pid)
    raise OSError(errno.EMFILE, "Too many open files")

if __name__ == "__main__":
    os.pidfd_open = refuse
    model = check_model(double, None, None, None)
    start = Starter(sys.argv[2], None, budget=8, output_batch=False)
    open_files = []
    for _ in range(2):  # with the first a forkserver starts
        with pytest.raises(OSError, match="Too many open files"):
            start(0, 1, 8, Version(model, pack(model)))
        open_files.append(os.listdir("/proc/self/fd"))
    assert open_files[1] == open_files[0]
    assert len(pids) == 2
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
"""


@pytest.mark.parametrize("method", START_METHODS)
def test_a_process_that_cannot_be_watched_is_ended_and_leaves_nothing(program, method):
    program(UNWATCHED, SUPPORT, method)
