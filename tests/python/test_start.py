"""Starting processes, where the system has no more to give."""

import errno
import os

import pytest
from process_models import double

from service_streamer._model import check_model, pack
from service_streamer._start import START_METHODS, Starter, Version


@pytest.fixture(params=START_METHODS)
def start(request):
    model = check_model(double, None, None, None)
    starter = Starter(request.param, None, isolate=True, output_batch=False)
    return lambda: starter(0, 1, 8, Version(model, pack(model)))


def test_a_process_that_cannot_be_watched_is_ended_and_leaves_nothing(start, monkeypatch):
    pids = []

    def refuse(pid):
        pids.append(pid)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    open_files = []
    for _ in range(2):  # with the first a forkserver starts
        with pytest.raises(OSError, match="Too many open files"):
            start()
        open_files.append(set(os.listdir("/proc/self/fd")))
    assert open_files[1] <= open_files[0]  # what an earlier test has dropped may go
    assert len(pids) == 2
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
