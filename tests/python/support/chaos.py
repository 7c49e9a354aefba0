"""A Streamer whose workers and clients die at random, while requests are given up at random.

``python chaos.py SECONDS SEED`` says at the end what is left: "ok", or what has grown. Every answer
is checked, and that every request ends once. One client is spared, so that what it has at the
beginning can be compared with what it has at the end; the same is done for the owner, and for the
workers that are there.
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
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy
from residue import LONG, WORKERS, grown, residues
from tasks import children

from service_streamer import CancelledError, RequestTimeout, Streamer, StreamerClosed, WorkerLost
from service_streamer._processes import slots

ENDS = (CancelledError, RequestTimeout, WorkerLost)
CALLERS = 6
CLIENTS = 3


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


def use_once(streamer):
    """Have made what a process makes when it is first needed, and then keeps."""
    items = [numpy.ones(200_000, dtype=numpy.float32), 1]
    ended = threading.Event()
    future = streamer.submit(items)
    future.add_done_callback(lambda _: ended.set())
    check(items, lambda: future.result(LONG))
    assert ended.wait(LONG)


class Ends:
    """Sees whether a request ends twice, which may be long after its result is there."""

    twice = 0

    def __init__(self):
        self._first = threading.Lock()

    def __call__(self, _):
        if not self._first.acquire(blocking=False):
            Ends.twice += 1

    @classmethod
    def check(cls):
        assert not cls.twice, f"{cls.twice} requests ended twice"


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
    future.add_done_callback(Ends())
    if what == "cancel":
        assert not future.cancel() or future.cancelled()
    elif what == "abandon":
        future._abandon()
    if what != "forget":
        check(items, lambda: future.result(LONG))
        assert future.done()
    return None


class Callers:
    """Threads that ask until `stop`."""

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
        for error in self.failures:
            raise error
        Ends.check()


def start_client(address, rng):
    command = [sys.executable, __file__, "client", address, str(rng.randrange(1 << 30))]
    return subprocess.Popen(command)


def ask_until(stop, address, rng, least=0):
    """Be a client, and another one, and so on; at least for so many requests."""
    asked = 0
    while not stop.is_set() or asked < least:
        with Streamer.connect(address) as streamer:
            for _ in range(rng.choice([1, 50, 1000])):
                if not stop.is_set() or asked < least:
                    request(streamer, rng)
                    asked += 1
        Ends.check()


def be_client(address, seed):
    """A client process, until it is killed or its input ends."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    ask_until(stop, address, random.Random(seed))


def be_spared_client(address, seed):
    """A client process that asks between one line of its input and the next."""
    rng = random.Random(seed)
    with contextlib.ExitStack() as several:  # for one that is closed lives until its requests end
        for _ in range(8):
            use_once(several.enter_context(Streamer.connect(address)))
    with ThreadPoolExecutor(1) as thread:
        while sys.stdin.readline():
            stop = threading.Event()
            # on a busy machine it may have to stop before it has begun
            asking = thread.submit(ask_until, stop, address, rng, least=100)
            sys.stdin.readline()
            stop.set()
            asking.result(LONG)
            gc.collect()
            print("at rest", flush=True)


class SparedClient:
    """The other end of it."""

    def __init__(self, address):
        command = [sys.executable, __file__, "spared", address, "0"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid

    def go(self):
        print("go", file=self._process.stdin, flush=True)

    def rest(self):
        print("rest", file=self._process.stdin, flush=True)
        assert self._process.stdout.readline() == "at rest\n", "the spared client failed"

    def end(self):
        self._process.communicate(timeout=LONG)
        assert self._process.returncode == 0


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
    """One accident; return which."""
    kind = rng.random()
    if kind < 0.5:
        ready = [worker for worker in streamer.stats().worker_processes if worker.state == "ready"]
        if not ready:
            return "none"
        how = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP])
        with contextlib.suppress(ProcessLookupError):  # of an accident before this one
            os.kill(rng.choice(ready).pid, how)
        return how.name
    if kind < 0.7:
        streamer.resize(rng.choice([1, 2, 3]))
        return "resize"
    if kind < 0.75:
        streamer.restart(timeout=LONG)
        return "restart"
    i = rng.randrange(len(clients))
    end_client(clients[i], rng)
    clients[i] = start_client(streamer.address, rng)
    return "end of a client"


def chaos(streamer, spared, seconds, rng):
    """Return how many accidents of each kind there were."""
    accidents = Counter()
    callers = Callers(streamer, rng.randrange(1 << 30))
    clients = [start_client(streamer.address, rng) for _ in range(CLIENTS)]
    spared.go()
    pace = threading.Event()
    until = time.monotonic() + seconds
    while time.monotonic() < until and not callers.failures:
        accidents[do_harm(streamer, clients, rng)] += 1
        pace.wait(rng.uniform(0, 0.2))
    callers.stop()
    spared.rest()
    for client in clients:
        end_client(client, rng, always=True)
    return accidents


def main(seconds, seed):
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # or workers had more threads while they are fewer
    slots.MAX_DELAY = 0.1  # with the usual back-off there would soon be no worker to kill
    rng = random.Random(seed)
    streamer = Streamer(model, 16, worker_num=WORKERS, retries=1, worker_hang_timeout=1.0)
    use_once(streamer)
    spared = SparedClient(streamer.address)
    chaos(streamer, spared, min(3, seconds / 2), rng)  # what is made once is there then
    before = residues(streamer, spared)
    accidents = chaos(streamer, spared, seconds, rng)
    after = residues(streamer, spared)
    deadline = time.monotonic() + LONG
    while grown(before, after) and time.monotonic() < deadline:  # the last client has just gone
        after = residues(streamer, spared)
    stats = streamer.stats()
    streamer.close()
    with contextlib.suppress(StreamerClosed):
        streamer.predict([1])
        raise AssertionError("a closed streamer answered")
    assert children() == {spared.pid}, "a worker is left"
    spared.end()
    print("accidents:", ", ".join(f"{n} {kind}" for kind, n in accidents.most_common()))
    print(
        f"{stats.submitted} requests: {stats.completed} answered, {stats.failed} failed, "
        f"{stats.expired} expired, {stats.cancelled} cancelled, {stats.dropped} dropped"
    )
    for kind, residue in after.items():
        print(f"{kind} before: {before[kind]}")
        print(f"{kind} after:  {residue}")
    more = grown(before, after)
    print("grown: " + ", ".join(more) if more else "ok")


if __name__ == "__main__":
    roles = {"client": be_client, "spared": be_spared_client}
    if sys.argv[1] in roles:
        roles[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
    else:
        try:
            main(float(sys.argv[1]), int(sys.argv[2]))
        except BaseException:
            for pid in children():  # they have our stderr, whose end the test waits for
                os.kill(int(pid), signal.SIGKILL)
            raise
