"""A Streamer whose workers and clients die at random, while requests are given up at random.

``python chaos.py SECONDS SEED`` says at the end what is left: "ok", or what has grown. Every answer
is checked, and that every request ends once.
"""

import contextlib
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time

import numpy

from service_streamer import (
    CancelledError,
    RequestTimeout,
    Streamer,
    StreamerClosed,
    WorkerLost,
)

LONG = 60
ENDS = (CancelledError, RequestTimeout, WorkerLost)
WORKERS = 2
CALLERS = 6
CLIENTS = 3
GROWTH = 16  # MB of memory that are no leak, but the allocator's


def model(batch):
    """Adds arrays up and doubles numbers; negative ones take a while."""
    if any(isinstance(item, int) and item < 0 for item in batch):
        threading.Event().wait(0.02)
    return [2 * item if isinstance(item, int) else float(item.sum()) for item in batch]


def random_items(rng):
    kind = rng.random()
    if kind < 0.1:
        return [numpy.full(rng.choice([10, 20_000, 200_000]), 1.0, dtype=numpy.float32)]
    if kind < 0.2:
        return [-1]
    return [rng.randrange(1000) for _ in range(rng.choice([1, 1, 1, 3, 100]))]


def expected(items):
    return [2 * item if isinstance(item, int) else float(item.size) for item in items]


def check(items, result):
    try:
        outputs = result()
    except ENDS:
        return
    assert outputs == expected(items), (items, outputs)


class Ends:
    """Counts how often each request ended."""

    def __init__(self):
        self.lock = threading.Lock()
        self.counts = {}

    def __call__(self, future):
        with self.lock:
            self.counts[id(future)] = self.counts.get(id(future), 0) + 1


def request(streamer, rng):
    items = random_items(rng)
    timeout = rng.choice([None, None, None, 0.001, 0.02, 10])
    what = rng.choice(["predict", "predict", "submit", "cancel", "abandon", "forget"])
    if what == "predict":
        return check(items, lambda: streamer.predict(items, timeout=timeout))
    try:
        future = streamer.submit(items, timeout=timeout)
    except RequestTimeout:
        return None
    ends = Ends()
    future.add_done_callback(ends)
    if what == "cancel":
        assert not future.cancel() or future.cancelled()
    elif what == "abandon":
        future._abandon()
    if what != "forget":
        check(items, lambda: future.result(LONG))
        assert future.done()
        assert all(count == 1 for count in ends.counts.values()), "a request ended twice"
    return None


class Callers:
    """Threads that ask until they are told to stop."""

    def __init__(self, streamer, seed):
        self._stop = False
        self.failures = []
        self._threads = [
            threading.Thread(
                target=self._run, args=(streamer, random.Random(seed + n)), daemon=True
            )
            for n in range(CALLERS)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, streamer, rng):
        try:
            while not self._stop:
                request(streamer, rng)
        except BaseException as error:
            self.failures.append(error)

    def stop(self):
        self._stop = True
        for thread in self._threads:
            thread.join(LONG)
            assert not thread.is_alive(), "a caller hangs"
        assert not self.failures, self.failures


def start_client(address, rng):
    command = [sys.executable, __file__, "client", address, str(rng.randrange(1 << 30))]
    return subprocess.Popen(command)


def be_client(address, seed):
    """A client process, until it is killed or told to go."""
    rng = random.Random(seed)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    while not stop.is_set():
        with Streamer.connect(address) as streamer:
            for _ in range(rng.choice([1, 50, 1000])):
                if not stop.is_set():
                    request(streamer, rng)


def end_client(client, rng, always=False):
    """End a client in one way or the other."""
    if always or rng.random() < 0.5:
        client.terminate()
        code = client.wait(LONG)  # of SIGTERM: it came before the client was there
        assert code in (0, -signal.SIGTERM), f"a client failed with {code}"
    else:
        client.kill()
        client.wait(LONG)


def do_harm(streamer, clients, rng):
    """One accident."""
    kind = rng.random()
    if kind < 0.5:
        ready = [worker for worker in streamer.stats().worker_processes if worker.state == "ready"]
        if ready:
            how = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP])
            os.kill(rng.choice(ready).pid, how)
    elif kind < 0.7:
        streamer.resize(rng.choice([1, 2, 3]))
    elif kind < 0.75:
        streamer.restart(timeout=LONG)
    else:
        i = rng.randrange(len(clients))
        end_client(clients[i], rng)
        clients[i] = start_client(streamer.address, rng)


def chaos(streamer, seconds, rng):
    callers = Callers(streamer, rng.randrange(1 << 30))
    clients = [start_client(streamer.address, rng) for _ in range(CLIENTS)]
    pace = threading.Event()
    until = time.monotonic() + seconds
    while time.monotonic() < until and not callers.failures:
        do_harm(streamer, clients, rng)
        pace.wait(rng.uniform(0, 0.2))
    callers.stop()
    for client in clients:
        end_client(client, rng, always=True)


def children():
    found = set()
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/children") as file:
            found.update(file.read().split())
    return found


def open_files():
    """What is open, but for the pool of shared memory: it grows to what was once used at a time."""
    names = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the list itself
            names.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [name for name in names if not name.startswith("/memfd:")]


def residue(streamer):
    """Descriptors, child processes and megabytes, when everything has come to rest."""
    streamer.resize(WORKERS)
    deadline = time.monotonic() + LONG
    pause = threading.Event()
    while True:
        streamer.wait_ready(LONG)
        gc.collect()
        stats = streamer.stats()
        states = [worker.state for worker in stats.worker_processes]
        quiet = stats.running_items == stats.queued_requests == 0
        if states == ["ready"] * WORKERS and len(children()) == WORKERS and quiet:
            break
        assert time.monotonic() < deadline, (states, children(), stats)
        pause.wait(0.05)
    with open("/proc/self/statm") as file:
        megabytes = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return len(open_files()), threading.active_count(), megabytes


def main(seconds, seed):
    rng = random.Random(seed)
    streamer = Streamer(model, 16, worker_num=WORKERS, retries=1, worker_hang_timeout=1.0)
    chaos(streamer, min(3, seconds / 2), rng)  # what is made once is there then
    before = residue(streamer)
    chaos(streamer, seconds, rng)
    after = residue(streamer)
    stats = streamer.stats()
    streamer.close()
    with contextlib.suppress(StreamerClosed):
        streamer.predict([1])
        raise AssertionError("a closed streamer answered")
    assert not children(), "a worker is left"
    print(f"descriptors, threads, MB before {before}, after {after}")
    print(f"{stats.submitted} requests, {stats.failed} failed")
    grown = [
        what
        for what, a, b in zip(("descriptors", "threads"), before[:2], after[:2], strict=True)
        if a != b
    ]
    if after[2] > before[2] + GROWTH:
        grown.append("memory")
    print("grown: " + ", ".join(grown) if grown else "ok")


if __name__ == "__main__":
    if sys.argv[1] == "client":
        be_client(sys.argv[2], int(sys.argv[3]))
    else:
        main(float(sys.argv[1]), int(sys.argv[2]))
