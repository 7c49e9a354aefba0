"""A streamer works in forked children, and its parent notices nothing.

A ThreadedStreamer has a worker of its own there; a Streamer becomes a client of its parent's.
"""

import textwrap

import pytest
from scripts import ALONE, EVENT, MAKE

pytestmark = [pytest.mark.every_python, pytest.mark.slow]

PRELUDE = (
    EVENT
    + ALONE
    + """
import sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads: that is what is tested
from service_streamer import *

def in_child(function):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            function()
            status = 0
        except BaseException as error:
            import traceback; traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return pid

def wait(pid):
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "the child failed"

def double(batch):
    return [2 * item for item in batch]
"""
)


@pytest.fixture
def script(child, backend):
    return lambda code: child(PRELUDE + MAKE[backend] + textwrap.dedent(code))


def test_a_streamer_made_before_the_fork_works_in_the_child(script):
    # gunicorn --preload
    script(
        """
        streamer = make(double, 8)
        pids = [in_child(lambda: streamer.predict([1]) == [2] or 1/0) for _ in range(4)]
        for pid in pids: wait(pid)
        assert streamer.predict([1]) == [2]
        """
    )


def test_a_streamer_used_before_the_fork_works_in_both(script):
    script(
        """
        streamer = make(double, 8)
        assert streamer.predict([1]) == [2]
        streamer.submit([1], timeout=20).result()

        def use():
            for i in range(100):
                assert streamer.predict([i]) == [2 * i]
                assert streamer.submit([i], timeout=20).result() == [2 * i]
            with streamer:
                pass

        pid = in_child(use)
        for i in range(100):
            assert streamer.predict([i]) == [2 * i]
        wait(pid)
        assert streamer.predict([1]) == [2]
        """
    )


def test_fork_while_a_batch_is_running(script):
    script(
        """
        entered, go = Event(), Event()

        def predict(batch):
            if batch == ["hold"]:
                entered.set()
                go.wait()
            return batch

        streamer = make(predict, 1)
        running = streamer.submit(["hold"])
        entered.wait()
        queued = streamer.submit(["queued"])

        def use():
            for future in (running, queued):  # of the parent: it ends, but not with an answer
                try:
                    future.result()
                except StreamerClosed as error:
                    assert "fork" in str(error)
                else:
                    raise AssertionError("answered")
                assert future.done() and not future.cancel()
            assert streamer.predict([1]) == [1]
            streamer.close()

        pid = in_child(use)
        go.set()
        wait(pid)
        assert running.result(30) == ["hold"]
        assert queued.result(30) == ["queued"]
        """
    )


def test_fork_while_a_lone_caller_waits(script):
    script(
        """
        entered, go = Event(), Event()

        def predict(batch):
            entered.set()
            go.wait()
            return batch

        streamer = make(predict, 8)
        streamer.wait_ready()
        wait_to_be_alone()
        outputs = []
        caller = threading.Thread(target=lambda: outputs.append(streamer.predict(["held"])))
        caller.start()
        entered.wait()

        def use():
            with make(double, 8) as own:
                own.wait_ready()
                wait_to_be_alone()
                assert own.predict([1]) == [2]
            go.set()
            assert streamer.predict([1]) == [1]

        wait(in_child(use))
        caller.join(30)
        assert outputs == [["held"]]
        wait_to_be_alone()
        assert streamer.predict([2]) == [2]
        """
    )


def test_a_loop_of_forks_under_load(script):
    script(
        """
        streamer = make(double, 8)

        def fork_beside(count):
            stop = threading.Event()

            def client():
                while not stop.is_set():
                    assert streamer.predict([1, 2]) == [2, 4]

            clients = [threading.Thread(target=client) for _ in range(count)]
            for thread in clients: thread.start()
            try:
                for _ in range(20):
                    wait(in_child(lambda: streamer.predict([3]) == [6] or 1/0))
            finally:
                stop.set()
            for thread in clients: thread.join(30)

        fork_beside(1)
        fork_beside(4)
        """
    )


def test_a_closed_streamer_is_closed_in_the_child(script):
    script(
        """
        import pytest
        streamer = make(double, 8)
        streamer.predict([1])
        streamer.close()

        def use():
            with pytest.raises(StreamerClosed):
                streamer.predict([1])

        wait(in_child(use))
        """
    )


def test_settings_changed_before_the_fork_hold_in_the_child(script):
    script(
        """
        streamer = make(double, 8)
        streamer.configure(policy="greedy", batch_size=3)

        settings = lambda: (streamer.stats().policy, streamer.stats().batch_size)
        wait(in_child(lambda: settings() == ("greedy", 3) or 1/0))
        """
    )


def test_a_grandchild_works_and_the_child_exits_cleanly(script):
    done = script(
        """
        streamer = make(double, 8)
        streamer.predict([1])
        pid = os.fork()
        if pid == 0:
            assert streamer.predict([2]) == [4]
            wait(in_child(lambda: streamer.predict([3]) == [6] or 1/0))
            print("child", flush=True)
            sys.exit(0)  # with atexit
        wait(pid)
        print("parent")
        """
    )
    assert done.stdout == "child\nparent\n"


def test_fork_from_the_model_itself(script):
    script(
        """
        def predict(batch):
            wait(in_child(lambda: inner.predict([1]) == [2] or 1/0))
            return batch

        inner = make(double, 8)
        inner.predict([1])
        streamer = make(predict, 8)
        assert streamer.predict([5]) == [5]
        """
    )


def test_multiprocessing_with_fork(script):
    script(
        """
        import multiprocessing

        streamer = make(double, 8)
        streamer.predict([1])

        def use(i):
            return streamer.predict([i])

        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(use, range(10)) == [[2 * i] for i in range(10)]
        """
    )


def test_asyncio_in_the_child_of_a_process_that_used_it(script):
    script(
        """
        import asyncio
        streamer = make(double, 8)
        call = lambda: asyncio.run(streamer.apredict([1]))
        assert call() == [2]
        pid = in_child(lambda: call() == [2] or 1/0)
        assert call() == [2]
        wait(pid)
        """
    )


def test_subprocesses_are_not_disturbed(script):
    script(
        """
        import subprocess
        streamer = make(double, 8)
        streamer.predict([1])
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        subprocess.run(["true"], preexec_fn=lambda: None, check=True)
        assert streamer.predict([1]) == [2]
        """
    )


def test_hooks_are_registered_with_the_first_streamer_only(child):
    done = child(
        """
        import atexit, os
        registered = []
        os.register_at_fork = lambda **hooks: registered.extend(hooks.values())
        atexit.register = lambda hook: registered.append(hook)

        def ours():
            return [hook for hook in registered if "service_streamer" in hook.__module__]

        import service_streamer
        assert not ours()
        service_streamer.ThreadedStreamer(len, 8)
        service_streamer.ThreadedStreamer(len, 8)
        print(len(ours()))
        """
    )
    assert done.stdout == "3\n"  # atexit, before and after a fork


def test_a_streamer_that_cannot_be_had_in_a_child_costs_no_other_its_own(child):
    done = child(
        PRELUDE
        + """
class OnlyInTheParent(ThreadedStreamer):
    def _backend_in_child(self):
        raise RuntimeError("make it after the fork")

streamers = [kind(double, 8) for kind in (ThreadedStreamer, OnlyInTheParent) * 4]

def use_them():
    for streamer in streamers:
        try:
            assert streamer.predict([1]) == [2]
        except RuntimeError as error:
            assert isinstance(streamer, OnlyInTheParent), error
            assert "make it after the fork" in str(error)
        else:
            assert not isinstance(streamer, OnlyInTheParent)
        streamer.close(timeout=30)

wait(in_child(use_them))
assert all(streamer.predict([1]) == [2] for streamer in streamers)
""",
        timeout=60,
    )
    assert done.stderr == ""


def test_a_streamer_that_cannot_be_made_in_a_child_raises_the_reason(child):
    child(
        PRELUDE
        + textwrap.dedent(
            """
            import asyncio
            from service_streamer.extend import BackendStreamer, Options, WaitingRoom

            class Echo(WaitingRoom):
                def hand_on(self, batch):
                    batch.complete(batch.items)

            parent = os.getpid()

            def make(options):
                if os.getpid() != parent:
                    raise StreamerError("not in a child")
                return Echo(options)

            streamer = BackendStreamer(Options(batch_size=8), make)

            def ask():
                for call in (
                    lambda: streamer.predict([1]),
                    lambda: streamer.submit([1]),
                    lambda: asyncio.run(streamer.apredict([1])),
                    lambda: list(streamer.stream(1)),
                    lambda: streamer.stats(),
                    lambda: streamer.configure(batch_size=3),
                    lambda: streamer.wait_ready(1),
                ):
                    try:
                        call()
                    except StreamerError as error:
                        assert str(error) == "not in a child", error
                    else:
                        raise SystemExit("no error")
                streamer.close(timeout=0)

            wait(in_child(ask))
            assert streamer.predict([1]) == [1]
            """
        )
    )
