"""What is left of futures whose workers are processes: memory, descriptors, forks, exits."""

import functools
import gc
import io
import weakref

import numpy as np
import pytest
from descriptors import open_descriptors
from remote import LONG, make_engine
from waits import eventually

from service_streamer import RequestTimeout, _core
from service_streamer._waiting import callbacks

pytest_plugins = ["remote_fixtures"]
pytestmark = pytest.mark.slow

LARGE = 100_000


def test_nothing_is_left_of_requests_and_answers(remote):
    engine = remote(lambda batch: [np.zeros(LARGE) for _ in batch])
    for _ in range(20):
        engine.predict([np.zeros(LARGE)] * 4)
    before = open_descriptors()
    kept = []
    for _ in range(100):
        kept = engine.predict([np.zeros(LARGE)] * 4)
    del kept
    assert open_descriptors() <= before + 16
    future = engine.submit([1])
    future.result()
    gone = weakref.ref(future)
    del future
    eventually(lambda: gone() is None)
    for _ in range(50):  # answers that are never looked at
        futures = [engine.submit([i]) for i in range(4)]
        for future in futures:
            eventually(future.done)
        del futures, future
    assert open_descriptors() <= before + 16


def test_a_long_queue_of_arrays_leaves_the_application_its_descriptors(child):
    child(
        """
        import resource, sys
        sys.path.insert(0, "tests/python/support")
        import numpy as np
        from thread_models import Gate
        from remote import RemoteEngine

        resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
        remote_gate = Gate(lambda batch: [2 * array for array in batch])
        engine = RemoteEngine(remote_gate)
        futures = [engine.submit([np.full(10_000, i)]) for i in range(300)]
        files = [open("/dev/null") for _ in range(50)]
        remote_gate.open()
        for i, future in enumerate(futures):
            (array,) = future.result(30)
            assert array.min() == array.max() == 2 * i
        """
    )


def test_cycles_through_a_future_are_collected(held_remote, remote_gate):
    engine = held_remote()
    queued = engine.submit([1])
    queued.itself = queued
    gone = weakref.ref(queued)
    queued.add_done_callback(functools.partial(print, queued, file=io.StringIO()))
    queued.cancel()
    callbacks.flush(LONG)
    del queued
    gc.collect()
    assert gone() is None
    remote_gate.open()


def test_a_forked_child_knows_what_had_ended_and_that_the_rest_is_its_parents(child):
    child(
        """
        import os, sys
        sys.path.insert(0, "tests/python/support")
        import numpy as np
        from thread_models import Gate
        from remote import RemoteEngine
        import service_streamer
        from service_streamer import StreamerClosed, _core

        service_streamer.ThreadedStreamer(len, 8)  # knows of forks
        remote_gate = Gate()
        engine = RemoteEngine(remote_gate)
        remote_gate.open()
        ended = engine.submit([1, 2])
        ended._condition
        assert engine.predict([1]) == [2]
        remote_gate.shut()
        running = engine.submit([3])
        running.add_done_callback(print)
        mailbox = _core.Mailbox()
        assert running._attach(mailbox, "token")
        pid = os.fork()
        if pid == 0:
            assert ended.result() == [2, 4]
            try:
                running.result()
            except StreamerClosed:
                pass
            try:
                engine.submit([1])
            except StreamerClosed:
                pass
            mailbox.close()
            del running, ended, mailbox
            other = RemoteEngine(lambda batch: batch)  # all of it works here, too
            called = []
            future = other.submit([7])
            future.add_done_callback(called.append)
            assert future.result(30) == [7]
            assert service_streamer._waiting.callbacks.flush(30)
            assert called == [future]
            other.close()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        remote_gate.open()
        assert running.result(30) == [6]
        """
    )


def test_an_engine_without_workers_ends_its_requests_when_it_goes():
    engine = make_engine()
    futures = [engine.submit([1], None, 0)]
    reference = weakref.ref(futures[0])
    del engine
    with pytest.raises(RequestTimeout):
        futures[0].result(0.01)
    futures.clear()
    gc.collect()
    assert reference() is None


def test_what_workers_of_this_process_do_is_refused():
    engine = make_engine()
    with pytest.raises(RuntimeError, match="processes"):
        engine.run_batches(list, bool)
    with pytest.raises(ValueError, match="remote=True"):
        _core.Server(make_engine(remote=False), 1, None, None)
    server = _core.Server(engine, 1, None, None)
    with pytest.raises(RuntimeError, match="watched"):
        engine.run_timer()
    with pytest.raises(ValueError, match="already"):
        _core.ClientLink(engine, server.address)
