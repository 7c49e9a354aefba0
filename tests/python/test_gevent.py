"""gevent with monkey patching: greenlets wait, the hub goes on, the model has a real thread."""

import textwrap

import pytest

pytest.importorskip("gevent")

PRELUDE = """
import gevent.monkey
gevent.monkey.patch_all()
import gevent, os, signal, sys, threading, time
from gevent.event import Event
from service_streamer import *

sleep_for_real = gevent.monkey.get_original("time", "sleep")

class NativeFlag:
    # an event for the model's thread, which is not gevent's
    def __init__(self):
        self._lock = gevent.monkey.get_original("_thread", "allocate_lock")()
        self._lock.acquire()
    def set(self):
        self._lock.release()
    def wait(self):
        assert self._lock.acquire(timeout=30)
        self._lock.release()

class Ticker:
    # how long the hub was away
    def __enter__(self):
        self.longest, self.ticks = 0.0, 0
        self._greenlet = gevent.spawn(self._run)
        gevent.sleep(0.05)
        return self
    def _run(self):
        last = time.perf_counter()
        while True:
            gevent.sleep(0.001)
            now = time.perf_counter()
            self.longest = max(self.longest, now - last - 0.001)
            self.ticks += 1
            last = now
    def __exit__(self, *_):
        self._greenlet.kill()

def double(batch):
    return [2 * item for item in batch]

def slow(batch):
    sleep_for_real(0.3)
    return double(batch)
"""


@pytest.fixture
def script(child):
    return lambda code, **kwargs: child(PRELUDE + textwrap.dedent(code), **kwargs)


def test_the_hub_goes_on_while_greenlets_wait(script):
    script(
        """
        streamer = ThreadedStreamer(slow, 64)
        with Ticker() as ticker:
            jobs = [gevent.spawn(streamer.predict, [i]) for i in range(64)]
            gevent.joinall(jobs, timeout=30, raise_error=True)
            assert [job.value for job in jobs] == [[2 * i] for i in range(64)]
            assert streamer.predict([1]) == [2]  # the main greenlet, too
            assert streamer.submit([1]).result() == [2]
            assert streamer.submit([1]).exception(20) is None
        assert ticker.ticks > 50, ticker.ticks
        assert ticker.longest < 0.2, ticker.longest  # the model takes 0.3
        """
    )


def test_many_greenlets_get_their_own_answers(script):
    script(
        """
        streamer = ThreadedStreamer(double, 32)

        def client(k):
            for i in range(50):
                assert streamer.predict([k, i]) == [2 * k, 2 * i]
            return k

        jobs = [gevent.spawn(client, k) for k in range(128)]
        gevent.joinall(jobs, timeout=50, raise_error=True)
        assert [job.value for job in jobs] == list(range(128))
        assert streamer.stats().mean_batch_size > 4
        """
    )


def test_deadlines_end_the_wait_of_a_greenlet(script):
    script(
        """
        go = NativeFlag()
        streamer = ThreadedStreamer(lambda batch: go.wait() or batch, 1, worker_timeout=0.05)
        first = streamer.submit([0])
        for call in (
            lambda: streamer.predict([1]),
            lambda: streamer.predict([1], timeout=0.01),
            lambda: streamer.submit([1], timeout=0.01).result(),
            lambda: first.result(0.01),
            lambda: first.result(0),
        ):
            start = time.monotonic()
            try:
                call()
            except RequestTimeout:
                assert time.monotonic() - start < 5
            else:
                raise AssertionError("no timeout")
        assert streamer.stats().queued_items == 0
        go.set()
        assert first.result(20) == [0]
        """
    )


def test_a_killed_greenlet_leaves_nothing_behind(script):
    script(
        """
        go = NativeFlag()
        streamer = ThreadedStreamer(lambda batch: go.wait() or batch, 1)
        first = streamer.submit([0])
        while streamer.stats().running_batches == 0: gevent.sleep(0.001)
        reader = gevent.spawn(first.result)
        jobs = [gevent.spawn(streamer.predict, [i]) for i in range(10)]
        while streamer.stats().queued_requests != 10:
            gevent.sleep(0.001)
        gevent.killall(jobs[:5] + [reader])
        assert streamer.stats().queued_requests == 5
        with gevent.Timeout(0.05, False):
            streamer.predict([1])
            raise AssertionError("not interrupted")
        assert streamer.stats().queued_requests == 5
        go.set()
        gevent.joinall(jobs[5:], timeout=30, raise_error=True)
        assert first.result(20) == [0]  # reading was killed, not the request
        from service_streamer import _gevent
        assert not _gevent._of_thread.box.waiting
        """
    )


def test_the_loop_ends_when_nobody_waits(script):
    script(
        """
        streamer = ThreadedStreamer(double, 8)
        assert gevent.spawn(streamer.predict, [1]).get() == [2]
        assert gevent.get_hub().join(timeout=20)  # an idle streamer keeps no loop running
        """
    )


def test_the_model_runs_in_a_real_thread(script):
    script(
        """
        main = gevent.monkey.get_original("_thread", "get_ident")()
        threads = []

        def predict(batch):
            threads.append(gevent.monkey.get_original("_thread", "get_ident")())
            return batch

        streamer = ThreadedStreamer(predict, 8)
        streamer.predict([1])
        assert threads and threads[0] != main
        """
    )


def test_close_does_not_stall_the_hub(script):
    script(
        """
        streamer = ThreadedStreamer(slow, 1)
        futures = [streamer.submit([i]) for i in range(2)]
        with Ticker() as ticker:
            streamer.close()
        assert [future.result(0) for future in futures] == [[0], [2]]
        assert ticker.longest < 0.2, ticker.longest
        try:
            streamer.predict([1])
        except StreamerClosed:
            pass
        else:
            raise AssertionError("accepted")
        """
    )


def test_a_full_queue_does_not_stall_the_hub(script):
    script(
        """
        streamer = ThreadedStreamer(slow, 1, max_queue=1)
        with Ticker() as ticker:
            jobs = [gevent.spawn(streamer.predict, [i]) for i in range(3)]
            jobs += [gevent.spawn(lambda i=i: streamer.submit([i]).result()) for i in range(3, 5)]
            gevent.joinall(jobs, timeout=30, raise_error=True)
            assert [job.value for job in jobs] == [[2 * i] for i in range(5)]
        assert ticker.longest < 0.2, ticker.longest
        """
    )


def test_wait_of_concurrent_futures_is_cooperative(script):
    script(
        """
        import concurrent.futures
        streamer = ThreadedStreamer(slow, 2)
        futures = [streamer.submit([i]) for i in range(4)]
        with Ticker() as ticker:
            done, not_done = concurrent.futures.wait(futures, timeout=30)
        assert len(done) == 4 and not not_done
        assert ticker.longest < 0.2, ticker.longest
        """
    )


def test_native_threads_of_a_patched_process_may_call(script):
    script(
        """
        streamer = ThreadedStreamer(double, 8)
        pool = gevent.get_hub().threadpool
        jobs = [pool.spawn(streamer.predict, [i]) for i in range(20)]
        assert [job.get(timeout=30) for job in jobs] == [[2 * i] for i in range(20)]
        """
    )


def test_an_exception_reaches_the_greenlet(script):
    script(
        """
        def predict(batch):
            raise LookupError("no")
        job = gevent.spawn(ThreadedStreamer(predict, 8).predict, [1])
        job.join(30)
        assert isinstance(job.exception, LookupError)
        """
    )


def test_ctrl_c_reaches_the_main_greenlet(script):
    script(
        """
        go = NativeFlag()
        streamer = ThreadedStreamer(lambda batch: go.wait() or batch, 8)
        gevent.spawn_later(0.1, os.kill, os.getpid(), signal.SIGINT)
        try:
            streamer.predict([1])
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("not interrupted")
        go.set()
        assert streamer.predict([2]) == [2]
        """
    )


def test_fork_under_gevent(script):
    script(
        """
        streamer = ThreadedStreamer(slow, 8)
        assert streamer.predict([1]) == [2]

        def waits():
            try:
                return streamer.predict([3])
            except StreamerClosed:
                return "parent's"

        waiting = gevent.spawn(waits)
        gevent.sleep(0)
        pid = os.fork()
        if pid == 0:
            try:
                assert streamer.predict([2]) == [4]
                assert gevent.spawn(streamer.predict, [5]).get() == [10]
                assert waiting.get(timeout=20) == "parent's", waiting.value
                os._exit(0)
            except BaseException:
                import traceback; traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
        assert waiting.get(timeout=20) == [6]
        assert streamer.predict([2]) == [4]
        assert os.waitpid(pid, 0)[1] == 0
        """
    )


def test_a_process_with_gevent_but_without_patching(child):
    child(
        """
        import threading
        import gevent
        from service_streamer import ThreadedStreamer
        from gevent._hub_local import get_hub_if_exists

        streamer = ThreadedStreamer(lambda batch: batch, 8)
        assert streamer.predict([1]) == [1]
        assert get_hub_if_exists() is None  # none was made for us
        jobs = [gevent.spawn(streamer.predict, [i]) for i in range(8)]
        gevent.joinall(jobs, timeout=30, raise_error=True)
        thread = threading.Thread(target=streamer.predict, args=([1],))
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
        """
    )


def test_hubs_of_several_threads(child):
    child(
        """
        import os, threading
        import gevent
        from service_streamer import ThreadedStreamer, _gevent

        streamer = ThreadedStreamer(lambda batch: batch, 8)

        def client():
            jobs = [gevent.spawn(streamer.predict, [i]) for i in range(8)]
            gevent.joinall(jobs, timeout=30, raise_error=True)
            gevent.get_hub().destroy(destroy_loop=True)

        def round_of_threads():
            threads = [threading.Thread(target=client) for _ in range(4)]
            for thread in threads: thread.start()
            for thread in threads: thread.join(30)
            assert not any(thread.is_alive() for thread in threads)

        for _ in range(3): round_of_threads()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(10): round_of_threads()
        assert len(os.listdir("/proc/self/fd")) <= before + 16
        """
    )


def test_exit_of_a_patched_process(script):
    done = script(
        """
        streamer = ThreadedStreamer(slow, 1)
        futures = [streamer.submit([i]) for i in range(100)]
        gevent.spawn(streamer.predict, [1])
        gevent.sleep(0.05)
        print("end", flush=True)
        """,
        timeout=30,
    )
    assert done.stdout == "end\n"
    assert done.timing < 20
