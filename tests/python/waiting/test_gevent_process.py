"""gevent and the process round it: threads, signals, forks, several hubs, the exit."""

import textwrap

import pytest
from gevent_prelude import PRELUDE
from scripts import MAKE
from waits import LONG

pytestmark = pytest.mark.slow

pytest.importorskip("gevent")


@pytest.fixture
def script(child, backend):
    return lambda code, **kwargs: child(PRELUDE + MAKE[backend] + textwrap.dedent(code), **kwargs)


@pytest.mark.in_process
def test_the_model_runs_in_a_real_thread(script):
    script(
        """
        main = gevent.monkey.get_original("_thread", "get_ident")()
        threads = []

        def predict(batch):
            threads.append(gevent.monkey.get_original("_thread", "get_ident")())
            return batch

        streamer = make(predict, 8)
        streamer.predict([1])
        assert threads and threads[0] != main
        """
    )


def test_native_threads_of_a_patched_process_may_call(script):
    script(
        """
        streamer = make(double, 8)
        pool = gevent.get_hub().threadpool
        jobs = [pool.spawn(streamer.predict, [i]) for i in range(20)]
        assert [job.get(timeout=30) for job in jobs] == [[2 * i] for i in range(20)]
        """
    )


def test_ctrl_c_reaches_the_main_greenlet(script):
    script(
        """
        go = NativeFlag()
        streamer = make(lambda batch: go.wait() or batch, 8)
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
        flag = NativeFlag()
        streamer = make(lambda batch: 3 not in batch and double(batch) or gated(flag)(batch), 8)
        assert streamer.predict([1]) == [2]

        def waits():
            try:
                return streamer.predict([3])
            except StreamerClosed:
                return "parent's"

        waiting = gevent.spawn(waits)
        gevent.sleep(0)
        pid = os.fork()
        flag.set()  # what was asked before the fork is answered after it
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
        from service_streamer import ThreadedStreamer
        from service_streamer._waiting import greenlets

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


def test_a_thread_may_get_another_hub(script):
    script(
        """
        streamer = make(double, 8)
        assert gevent.spawn(streamer.predict, [1]).get() == [2]
        first = gevent.get_hub()
        first.destroy(destroy_loop=False)
        assert gevent.get_hub() is not first
        assert streamer.predict([2]) == [4]
        assert gevent.spawn(streamer.predict, [3]).get() == [6]
        """
    )


def test_greenlets_may_have_other_parents_than_the_hub(script):
    script(
        """
        from greenlet import greenlet as RawGreenlet
        streamer = make(double, 8)
        assert gevent.spawn(streamer.predict, [1]).get() == [2]
        inner = RawGreenlet(lambda: streamer.predict([2]))  # of the main greenlet
        assert inner.switch() == [4]
        outer = gevent.spawn(lambda: RawGreenlet(lambda: streamer.predict([3])).switch())
        assert outer.get() == [6]
        """
    )


def test_exit_of_a_patched_process(script):
    done = script(
        """
        streamer = make(slow, 1)
        futures = [streamer.submit([i]) for i in range(1000)]
        gevent.spawn(streamer.predict, [1])
        gevent.sleep(0.05)
        print("end", flush=True)
        """
    )
    assert done.stdout == "end\n"
    assert done.timing < LONG
