"""What is left of futures whose workers are processes: memory, descriptors, forks, exits."""

import functools
import gc
import io
import os
import weakref

import numpy as np
import pytest
from descriptors import open_descriptors
from remote import LONG
from waits import eventually

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
    assert gone() is None


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


def test_an_answer_that_nobody_looked_at_is_released(remote):
    engine = remote(lambda batch: [np.zeros(LARGE) for _ in batch])
    engine.predict([0] * 8)
    before = None
    for _ in range(50):
        futures = [engine.submit([i]) for i in range(4)]
        for future in futures:
            eventually(future.done)
        del futures, future
        before = before or open_descriptors()
    assert open_descriptors() <= before + 16


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


def test_the_interpreter_may_end_with_everything_under_way(child):
    child(
        """
        import sys, threading
        sys.path.insert(0, "tests/python/support")
        from thread_models import Gate
        from remote import RemoteEngine

        remote_gate = Gate()
        engine = RemoteEngine(remote_gate)
        engine.submit([0]).add_done_callback(print)
        remote_gate.wait_entered()
        for _ in range(20):
            threading.Thread(target=engine.predict, args=([1],), daemon=True).start()
        futures = [engine.submit([object] * 100) for _ in range(10)]
        for future in futures:
            future.add_done_callback(print)
        """
    )


def test_ctrl_c_ends_the_wait_for_a_remote_answer(child):
    child(
        """
        import os, signal, sys, threading
        sys.path.insert(0, "tests/python/support")
        from thread_models import Gate
        from remote import RemoteEngine

        remote_gate = Gate()
        engine = RemoteEngine(remote_gate)

        def interrupt():
            remote_gate.wait_entered()  # so the main thread has asked
            os.kill(os.getpid(), signal.SIGINT)

        try:
            threading.Thread(target=interrupt).start()
            engine.predict([1])
        except KeyboardInterrupt:
            remote_gate.open()
            print(engine.predict([2]))
            os._exit(0)
        """
    )


def test_greenlets_wait_for_remote_answers(child):
    child(
        """
        from gevent import monkey
        monkey.patch_all()
        import gevent, sys
        sys.path.insert(0, "tests/python/support")
        import os, socket
        from service_streamer import _core, _worker
        from service_streamer._waiting.threads import NativeThread
        from remote import make_engine

        engine = make_engine(batch_size=64)
        server = _core.Server(engine, 1, None, None)
        server.start()
        ours, theirs = socket.socketpair()
        server.add_worker(ours.detach(), 2**22 + 1, b"")
        fd = theirs.detach()
        remote_gate, key = os.pipe()

        def gated(items):
            os.read(remote_gate, 1)
            return items

        def work():
            link = _core.WorkerLink(fd, False)
            link.receive_setup()
            link.send_ready("{}")
            assert link.run_batches(gated, _worker.is_logged) is None

        NativeThread(work, "worker").start()
        jobs = [gevent.spawn(engine.predict, [i], 30, 0) for i in range(200)]
        # it runs while they wait: otherwise nobody would let the model answer
        turn = gevent.spawn(os.write, key, b"." * len(jobs))
        gevent.joinall(jobs)
        assert [job.value for job in jobs] == [[i] for i in range(200)]
        turn.get()
        server.stop()
        os._exit(0)
        """
    )


def test_workers_report_what_they_did(remote):
    import json

    engine = remote()
    engine.predict(list(range(20)))
    stats = json.loads(engine.server.stats())
    (worker,) = stats["worker_processes"]
    assert worker["batches"] == 3
    assert worker["items"] == 20
    assert worker["about"] in ('{"pid": 1}', {"pid": 1})
    assert os.getpid() != worker["pid"]
