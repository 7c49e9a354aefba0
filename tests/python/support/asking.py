"""Callers that ask in threads of theirs while a test does harm, and look at every answer."""

import contextlib
import os
import random
import signal
import threading
from collections import Counter

from tasks import children
from waits import LONG, Threads, eventually


class Asking:
    """Threads that send requests to a streamer of `double`, one after the other, until `stop`.

    `counts` has the requests of each caller that were answered. Each of them must end once.
    """

    def __init__(self, streamer, callers=1, timeout=LONG):
        self._streamer = streamer
        self._timeout = timeout
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._ends = Counter()
        self._threads = Threads()
        self.counts = [0] * callers
        for caller in range(callers):
            self._threads.run(self._ask, caller)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def answered(self):
        return sum(self.counts)

    def failed(self):
        return any(outcome is not None for outcome in self._threads.outcomes)

    def wait_for_more(self, count=5):
        """Wait until each caller was answered so often."""
        before = self.counts[:]
        eventually(
            lambda: (
                self.failed()
                or all(now >= then + count for now, then in zip(self.counts, before, strict=True))
            )
        )

    def stop(self):
        """Have what is under way answered, and end."""
        self._over.set()
        assert self._threads.join() == [None] * len(self.counts)
        eventually(lambda: len(self._ends) == self.answered)  # counted by another thread
        self.check_ends()
        return self.answered

    def check_ends(self):
        assert set(self._ends.values()) <= {1}, "a request ended twice"

    def _ask(self, caller):
        rng = random.Random(caller)
        while not self._over.is_set():
            number = self.counts[caller]
            items = [caller, number, "a"] * rng.choice([1, 1, 2, 7])
            future = self._streamer.submit(items, timeout=self._timeout)
            future.add_done_callback(lambda _, key=(caller, number): self._count(key))
            assert future.result(self._timeout) == [2 * item for item in items]
            self.counts[caller] += 1

    def _count(self, key):
        with self._lock:
            self._ends[key] += 1


def kill_under_load(start, callers, kills=50):
    """Kill workers as a whole, or a process of their models, while each caller gets answers.

    Args:
        start: starts a `ProcessWorker`. There are always two.
        callers: `Asking` objects, which are stopped at the end.
    """
    rng, pace = random.Random(os.getpid()), threading.Event()
    alive = [start() for _ in range(2)]
    for _ in range(kills):
        before = [each.answered for each in callers]
        pace.wait(rng.uniform(0, 0.1))
        number = rng.randrange(2)
        models = sorted(children(alive[number].pid))
        if rng.random() < 0.6 and models:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(models), signal.SIGKILL)
        else:
            alive[number].kill()
            alive[number] = start()
        for each, count in zip(callers, before, strict=True):
            eventually(lambda each=each, count=count: each.answered > count or each.failed())
    for each in callers:
        each.stop()
