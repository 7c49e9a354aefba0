"""A start that fails, is interrupted or meets a close: nothing hangs, is there twice or is left.

Ctrl-C is raised by `threading.Thread.start`, before there is a thread or when there is one.
"""

import sys
import textwrap
import threading
import types

import pytest
from gevent_prelude import PRELUDE
from starts import fails, interrupted_after, interrupted_before, start_by
from thread_models import double
from waits import LONG, eventually

from service_streamer import StreamerClosed, ThreadedStreamer
from service_streamer._base import options
from service_streamer._processes import descriptors
from service_streamer._threads import native
from service_streamer._waiting.threads import NativeThread, is_patched

pytestmark = pytest.mark.every_python


ways_to_fail = pytest.mark.parametrize("way", [fails, interrupted_before, interrupted_after])


# ------------------------------------------------------------------------ threads


def test_a_thread_that_was_joined_does_not_begin():
    ran = threading.Event()
    thread = NativeThread(ran.set, "never")
    assert thread.join()
    thread.start()
    assert thread.join()
    assert not ran.is_set()


def test_a_thread_has_begun_when_its_start_returns(started):
    go = threading.Event()
    thread = NativeThread(go.wait, "slow")
    thread.start()
    assert not thread.join(0)
    thread.start()
    go.set()
    assert thread.join(LONG)
    thread.start()
    assert not started("slow")


def test_gevent_is_being_imported_by_another_thread(monkeypatch):
    monkeypatch.setitem(sys.modules, "gevent.monkey", types.ModuleType("gevent.monkey"))
    assert not is_patched("threading")
    streamer = ThreadedStreamer(double, 8)
    assert streamer.predict([1], timeout=LONG) == [2]
    streamer.close(timeout=LONG)


def test_a_ctrl_c_before_a_fork_leaves_nothing_locked(threads):
    class Interrupted:
        def __init__(self):
            self._lock = threading.RLock()

        def acquire(self):
            self._lock.acquire()
            raise KeyboardInterrupt

        def release(self):
            self._lock.release()

        def is_free(self):
            return self._lock.acquire(blocking=False)

    no_fork = descriptors._NoFork()
    no_fork._lock = lock = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        no_fork.before_fork()
    no_fork.after_fork_in_parent()
    threads.run(lock.is_free)
    assert threads.join() == [True]
    no_fork.after_fork_in_parent()  # of hooks that were registered in the midst of a fork


# ------------------------------------------------------------------------ workers


@pytest.mark.in_process
@ways_to_fail
@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("worker", lambda streamer, i: streamer.predict([i], timeout=LONG)),
        ("timer", lambda streamer, i: streamer.submit([i], timeout=LONG).result(LONG)),
    ],
    ids=["worker", "timer"],
)
def test_there_is_one_thread_whatever_its_first_start_met(
    streamers, threads, monkeypatch, way, started, name, ask
):
    thread = f"service-streamer-{name}"
    streamer = streamers()
    start_by(way, monkeypatch, thread)
    with pytest.raises((KeyboardInterrupt, RuntimeError)):
        ask(streamer, 1)
    for i in range(3):
        assert ask(streamer, i) == [2 * i]
    eventually(lambda: len(started(thread)) == 1)
    threads.run(streamer.close)
    assert threads.join() == [None]
    eventually(lambda: not started(thread))


def test_there_is_one_worker_where_gevent_has_patched_what_starts_it(child):
    pytest.importorskip("gevent")
    child(
        PRELUDE
        + textwrap.dedent(
            """
            from service_streamer._waiting import threads
            original = threads.original

            def interrupted(module, name):
                if name != "start_new_thread":
                    return original(module, name)
                threads.original = original
                def start(*args):
                    original(module, name)(*args)
                    raise KeyboardInterrupt
                return start

            def tasks():
                return len(os.listdir("/proc/self/task"))

            streamer = ThreadedStreamer(double, 8)
            before = tasks()
            threads.original = interrupted
            try:
                streamer.submit([1])
            except KeyboardInterrupt:
                pass
            else:
                raise SystemExit("not interrupted")
            for i in range(3):
                assert streamer.submit([i]).result(30) == [2 * i]
            until = time.monotonic() + 30
            while tasks() != before + 1:
                assert time.monotonic() < until, tasks() - before
                gevent.sleep(0.001)
            streamer.close()
            """
        )
    )


@pytest.mark.in_process
@pytest.mark.parametrize("start", [True, False], ids=["it starts", "it fails"])
@pytest.mark.parametrize("name", ["worker", "timer"])
def test_close_does_not_wait_for_a_thread_that_is_being_started(
    streamers, threads, monkeypatch, name, start, started
):
    streamer = streamers()
    hangs = []

    def closed_meanwhile(thread, original):
        closing = threads.run(streamer.close)  # or a handler of SIGTERM does it in this one
        closing.join(LONG)
        hangs.append(closing.is_alive())
        if not start:
            raise RuntimeError("can't start new thread")
        original(thread)

    start_by(closed_meanwhile, monkeypatch, f"service-streamer-{name}")
    with pytest.raises(StreamerClosed if start else RuntimeError):
        streamer.submit([1], timeout=LONG)
    assert hangs == [False]
    assert threads.join() == [None]
    eventually(lambda: not started(f"service-streamer-{name}"))


class NativeEngine:
    """What `NativeWorkers` needs of an engine to have a timer."""

    def __init__(self, *args, **kwargs):
        self.closed = threading.Event()
        self.seen = []

    def run_timer(self):
        self.seen.append(self.backend.own_this_thread())
        assert self.closed.wait(LONG)

    def close(self, drain):
        self.closed.set()


@ways_to_fail
def test_the_timer_of_native_workers(monkeypatch, threads, way, started):
    class NoWorkers:
        def __init__(self, *args):
            pass

        def join(self, timeout):
            return True

    source = types.SimpleNamespace(workers=1, capsule=lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(native, "make_engine", NativeEngine)
        patch.setattr(native._core, "NativeWorkers", NoWorkers)
        backend = native.NativeWorkers(source, options.Options(batch_size=8))
    backend.engine.backend = backend
    start_by(way, monkeypatch, "service-streamer-timer")
    with pytest.raises((KeyboardInterrupt, RuntimeError)):
        backend._start_timer()
    for _ in range(3):
        backend._start_timer()
    assert not backend.own_this_thread()
    backend.close(False)
    threads.run(backend.join, LONG)
    assert threads.join() == [True]
    assert backend.engine.seen == [True]
    eventually(lambda: not started("service-streamer-timer"))
