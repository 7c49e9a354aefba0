"""Starts of callbacks' thread and of processes that fail: each is there once, nothing is left."""

import itertools
import logging
import os
import signal
import textwrap
import threading

import pytest
from scripts import SUPPORT
from starts import fails, interrupted_after, interrupted_before, start_by
from tasks import children, threads_named
from thread_models import double
from waits import LONG, eventually

from service_streamer import (
    Streamer,
    StreamerClosed,
)
from service_streamer._processes import owner
from service_streamer._processes.start import START_METHODS

pytestmark = pytest.mark.every_python


# ---------------------------------------------------------------------- callbacks

CALLBACKS = f"""
import os, select, sys, threading
sys.path.insert(0, {SUPPORT!r})
from waits import LONG, eventually
from process_models import double
from service_streamer import Streamer, _core
from service_streamer._waiting import callbacks
from starts import fails, interrupted_after, interrupted_before, start_by

def gated(batch):
    assert select.select([read], [], [], LONG)[0]
    return double(batch)

read, write = os.pipe()
streamer = Streamer(gated, 8, mp_start_method="fork", worker_timeout=LONG)
futures = [streamer.submit([i]) for i in range(3)]
called = [threading.Event() for _ in futures]
inside = []

def call(i):
    def callback(future):
        inside.append(callbacks.in_callback())
        called[i].set()
    futures[i].add_done_callback(callback)

def followers():
    return [each for each in threading.enumerate() if each.name == "service-streamer-callbacks"]

def answered():
    os.write(write, b".")
    assert [future.result(LONG) for future in futures] == [[0], [2], [4]]

class Patch:
    setattr = staticmethod(setattr)
"""


@pytest.mark.parametrize("way", ["fails", "interrupted_before", "interrupted_after", "no mailbox"])
def test_callbacks_are_called_whatever_the_first_start_of_their_thread_met(child, way):
    child(
        CALLBACKS
        + textwrap.dedent(
            f"""
            way = {way!r}
            if way == "no mailbox":
                original = _core.open_callbacks
                def no_descriptor():
                    _core.open_callbacks = original
                    raise OSError("no descriptor")
                _core.open_callbacks = no_descriptor
            else:
                start_by(globals()[way], Patch, "service-streamer-callbacks")
            try:
                call(0)
            except (KeyboardInterrupt, RuntimeError, OSError):
                pass
            else:
                raise SystemExit("nothing was raised")
            for i in (1, 2):
                call(i)
            answered()
            for event in called[1:]:
                assert event.wait(LONG)
            assert all(inside)
            eventually(lambda: len(followers()) == 1)
            streamer.close(timeout=LONG)
            """
        )
    )


def test_callbacks_asked_for_at_the_same_time_have_one_thread(child):
    child(
        CALLBACKS
        + textwrap.dedent(
            """
            both = threading.Barrier(2)
            start = callbacks.start

            def together():
                both.wait(LONG)
                start()

            callbacks.start = together
            askers = [threading.Thread(target=call, args=(i,)) for i in (0, 1)]
            for asker in askers:
                asker.start()
            for asker in askers:
                asker.join(LONG)
            call(2)
            answered()
            for event in called:
                assert event.wait(LONG)
            assert all(inside)
            eventually(lambda: len(followers()) == 1)
            streamer.close(timeout=LONG)
            """
        )
    )


# ---------------------------------------------------------------------- processes


def test_close_in_the_thread_of_the_supervisor_does_not_wait_for_it(process_streamers):
    closed = threading.Event()

    class Closing(logging.Handler):
        def emit(self, record):
            if threading.current_thread().name == "service-streamer-supervisor":
                streamer.close()
                closed.set()

    streamer = process_streamers(wait_for_worker_ready=True)
    logger, handler = logging.getLogger("service_streamer"), Closing()
    logger.addHandler(handler)
    try:
        os.kill(streamer.stats().worker_processes[0].pid, signal.SIGKILL)
        assert closed.wait(LONG)
    finally:
        logger.removeHandler(handler)
    with pytest.raises(StreamerClosed):
        streamer.predict([1])


@pytest.mark.parametrize(
    ("way", "method"),
    [
        *itertools.product([fails, interrupted_before, interrupted_after], ["fork", "spawn"]),
        ("waits", "fork"),
    ],
)
def test_a_constructor_that_raises_leaves_nothing(monkeypatch, threads, way, method, started):
    def interrupted(fn, *args):
        fn(*args)
        raise KeyboardInterrupt

    before = children(), threads_named("streamer-server")
    with monkeypatch.context() as patch:
        if way == "waits":  # for the first workers
            patch.setattr(owner.greenlets, "call", interrupted)
        else:
            start_by(way, patch, "service-streamer-supervisor")
        threads.run(Streamer, double, 8, worker_num=2, mp_start_method=method)
        (raised,) = threads.join()
    assert isinstance(raised, KeyboardInterrupt | RuntimeError)
    eventually(lambda: not started("service-streamer-supervisor"))
    eventually(lambda: children() <= before[0])
    eventually(lambda: threads_named("streamer-server") <= before[1])


UNWATCHED = """
import errno, os, sys
sys.path.insert(0, sys.argv[1])
import pytest
from process_models import double
from service_streamer._models.model import check_model, pack
from service_streamer._placement.places import Placement
from service_streamer._processes.start import ModelVersion, Starter

pids = []

def refuse(pid):
    pids.append(pid)
    raise OSError(errno.EMFILE, "Too many open files")

if __name__ == "__main__":
    os.pidfd_open = refuse
    model = check_model(double, None, None, None)
    start = Starter(sys.argv[2], None, Placement(), budget=8, output_batch=False)
    open_files = []
    for _ in range(2):  # with the first a forkserver starts
        with pytest.raises(OSError, match="Too many open files"):
            start(0, 1, 8, ModelVersion(model, pack(model)))
        open_files.append(os.listdir("/proc/self/fd"))
    assert open_files[1] == open_files[0]
    assert len(pids) == 2
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", START_METHODS)
def test_a_process_that_cannot_be_watched_is_ended_and_leaves_nothing(program, method):
    program(UNWATCHED, SUPPORT, method)
