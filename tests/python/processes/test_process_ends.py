"""A Streamer's workers go with it."""

import contextlib
import gc
import os
import threading
import time

import pytest
from descriptors import open_descriptors
from process_models import double, files_in_shared_memory, is_alive
from waits import LONG, eventually

from service_streamer import Streamer
from service_streamer._processes import pool

pytestmark = pytest.mark.slow


def pids(streamer):
    return [worker.pid for worker in streamer.stats().worker_processes]


@pytest.mark.timeout(300)  # eighteen interpreters, or more
def test_close_leaves_nothing_behind(tmp_path):
    address = str(tmp_path / "socket")

    def use():
        with Streamer(double, 8, worker_num=3, address=address) as streamer:
            streamer.wait_ready(100)
            assert streamer.predict([1], timeout=LONG) == [2]
            workers = pids(streamer)
        assert not any(os.path.exists(f"/proc/{pid}") for pid in workers)
        assert not os.path.exists(address)

    def left():
        gc.collect()
        return open_descriptors() + threading.active_count()

    for _ in range(3):
        use()  # what is made once in a process is there now
    shared = files_in_shared_memory()

    def adds_nothing():
        before = left()
        for _ in range(3):
            use()
        with contextlib.suppress(AssertionError):
            eventually(lambda: left() <= before, 5)
            return True

    # as many waiters are kept as were in use at a time: that may be more than ever, but not always
    assert any(adds_nothing() for _ in range(4))
    eventually(lambda: files_in_shared_memory() <= shared)  # those of tests beside this one go


def test_an_unreferenced_streamer_drains_and_is_freed(process_gate):
    streamer = Streamer(process_gate, 1, mp_start_method="fork")
    (worker,) = [process_gate.wait_entered() for _ in [streamer.submit([0])]]
    futures = [streamer.submit([i]) for i in (1, 2)]
    del streamer
    process_gate.open()
    assert [future.result(LONG) for future in futures] == [[2], [4]]
    eventually(lambda: not is_alive(worker))


def test_close_gives_up_a_model_that_does_not_return(process_streamers, process_gate, monkeypatch):
    monkeypatch.setattr(pool, "GRACE", 2 * LONG)
    streamer = process_streamers(process_gate)
    streamer.submit([1])
    worker = process_gate.wait_entered()
    start = time.monotonic()
    streamer.close(timeout=0.1)
    eventually(lambda: not is_alive(worker))
    assert time.monotonic() - start < LONG
