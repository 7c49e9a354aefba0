"""Ctrl-C in the main thread ends a wait at once, and costs the streamer nothing."""

import pytest
from scripts import EVENT, MAKE

pytestmark = [pytest.mark.every_python, pytest.mark.slow]

SCRIPT = """
{event}
import functools, signal, threading, time
from service_streamer import Streamer, ThreadedStreamer

entered, go = Event(), Event()

def predict(batch):
    entered.set()
    go.wait()
    return batch

{make}
streamer = make(predict, 8, max_queue=1, worker_timeout=50)
first = streamer.submit([0])
entered.wait()

calling = threading.Event()

def interrupt():
    # when no other thread has used the processor for a while, so the main thread is in the call
    calling.wait()
    looks = 0
    while looks < 20:
        before = time.process_time() - time.thread_time()
        time.sleep(0.001)
        used = time.process_time() - time.thread_time() - before
        looks = looks + 1 if used < 2e-5 else 0
    os.kill(os.getpid(), signal.SIGINT)

{prepare}
threading.Thread(target=interrupt).start()
start = time.monotonic()
try:
    calling.set()
    {call}
except KeyboardInterrupt:
    pass
else:
    raise SystemExit("not interrupted")
assert time.monotonic() - start < 30
{check}
go.set()
assert first.result() == [0]
assert streamer.predict([1]) == [1]
streamer.close()
print("clean")
"""


@pytest.mark.parametrize(
    ("prepare", "call", "check"),
    [
        ("", "streamer.predict([1])", "assert streamer.stats().queued_items == 0"),
        ("", "streamer.predict([1], timeout=50)", "assert streamer.stats().cancelled == 1"),
        ("", "first.result()", "assert not first.done()"),
        ("", "first.exception(50)", "assert not first.done()"),
        ("streamer.submit([1])", "streamer.submit([2])", "streamer.stats().waiting_requests == 0"),
        ("", "streamer.close()", "go.set(); first.result(); raise SystemExit(print('clean'))"),
        ("", "list(streamer.map([1, 2]))", "assert streamer.stats().queued_items == 0"),
    ],
    ids=["predict", "deadline", "result", "exception", "submit", "close", "map"],
)
def test_ctrl_c_ends_the_wait_of_the_main_thread(child, backend, prepare, call, check):
    script = SCRIPT.format(event=EVENT, make=MAKE[backend], prepare=prepare, call=call, check=check)
    assert "clean" in child(script).stdout


@pytest.mark.parametrize("call", ["streamer.wait_ready()", "streamer.restart()"])
def test_ctrl_c_ends_the_wait_for_workers(child, call):
    make = """
def loading(batch):
    if batch == ["load"]:
        entered.set()
        go.wait()
    return batch

make = functools.partial(Streamer, mp_start_method="fork", warmup=["load"])
predict = loading
"""
    code = SCRIPT.format(event=EVENT, make=make, prepare="", call=call, check="")
    code = code.replace("first = streamer.submit([0])", "").replace("first.result()", "[0]")
    assert "clean" in child(code).stdout


def test_other_signal_handlers_run_while_waiting(child):
    done = child(
        """
        import os, signal, threading
        from service_streamer import ThreadedStreamer

        go = threading.Event()
        signal.signal(signal.SIGUSR1, lambda *_: go.set())

        def predict(batch):
            # One that comes a moment before the main thread sleeps does not wake it; nor does it
            # in Python's own waits.
            while not go.wait(0.05):
                os.kill(os.getpid(), signal.SIGUSR1)
            return batch

        print(ThreadedStreamer(predict, 8).predict([1]))
        """
    )
    assert done.stdout == "[1]\n"
