"""Models, streamers and child interpreters for the tests.

No test sleeps to wait for something: models block on events (`Gate`), and what only the streamer
knows is observed in its statistics (`eventually`).
"""

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import service_streamer
from service_streamer import ThreadedStreamer

# A job that a shell runs in the background ignores Ctrl-C, and so would all child interpreters.
signal.signal(signal.SIGINT, signal.default_int_handler)

LONG = 30  # seconds: longer than anything here takes; reached only by a failure


def double(batch):
    return [2 * item for item in batch]


def eventually(predicate, timeout=LONG):
    """Wait until something that nobody announces is true."""
    deadline = time.monotonic() + timeout
    tick = threading.Event()
    while not predicate():
        assert time.monotonic() < deadline, "it did not become true"
        tick.wait(0.001)


class Gate:
    """A model that stops in every batch until it is opened, and remembers the batches."""

    def __init__(self, predict=double):
        self._predict = predict
        self._entered = threading.Semaphore(0)
        self._open = threading.Event()
        self.batches = []

    def __call__(self, batch):
        self.batches.append(list(batch))
        self._entered.release()
        assert self._open.wait(LONG), "the gate was never opened"
        return self._predict(batch)

    def wait_entered(self):
        """Wait until one more batch is in the model."""
        assert self._entered.acquire(timeout=LONG), "no batch came"

    def open(self):
        self._open.set()

    def shut(self):
        self._open.clear()


class Threads:
    """Runs functions in threads and gives what they returned or raised."""

    def __init__(self):
        self._threads = []
        self.outcomes = []

    def run(self, function, *args, **kwargs):
        index = len(self.outcomes)
        self.outcomes.append(None)

        def target():
            try:
                self.outcomes[index] = function(*args, **kwargs)
            except BaseException as error:
                self.outcomes[index] = error

        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def join(self):
        for thread in self._threads:
            thread.join(LONG)
            assert not thread.is_alive(), "a thread hangs"
        return self.outcomes


@pytest.fixture
def threads():
    return Threads()


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def streamers():
    """Makes streamers and closes them after the test."""
    made = []

    def make(predict=double, batch_size=8, *args, **kwargs):
        streamer = ThreadedStreamer(predict, batch_size, *args, **kwargs)
        made.append(streamer)
        return streamer

    yield make
    for streamer in made:
        streamer.close(drain=False, timeout=LONG)


@pytest.fixture
def held(streamers, gate):
    """A streamer whose model is busy with the item "first" until `gate.open()`."""

    def make(*args, **kwargs):
        streamer = streamers(gate, *args, **kwargs)
        first = streamer.submit(["first"])
        gate.wait_entered()
        streamer.first = first
        return streamer

    return make


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    """Runs a coroutine to its end in a loop of its own."""
    new_loop = asyncio.new_event_loop
    if request.param == "uvloop":
        new_loop = pytest.importorskip("uvloop").new_event_loop

    def run(main):
        loop = new_loop()
        try:
            return loop.run_until_complete(asyncio.wait_for(main, LONG))
        finally:
            loop.close()

    return run


async def settled():
    """Let every task run until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


def run_python(code, timeout=60, check=True, env=None):
    """Run a script in an interpreter of its own; `timing` has the seconds that it took."""
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=env,
    )
    done.timing = time.monotonic() - start
    if check:
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="session")
def child():
    """`run_python`, for scripts that may leave their interpreter in any state."""
    assert service_streamer.__file__
    return run_python
