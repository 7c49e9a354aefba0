"""Callers that ask by threads of theirs, while a test does harm, and look at every answer."""

import contextlib
import random
import threading

from redis_tools import RawClient
from waits import LONG, eventually

from service_streamer import RedisStreamer


@contextlib.contextmanager
def asking(streamer, threads, callers, timeout=LONG):
    """Threads that ask a streamer meanwhile, one thing after the other."""
    over = threading.Event()

    def ask(caller):
        count = 0
        while not over.is_set():
            answers = streamer.predict([caller, count], timeout=timeout)
            assert answers == [2 * caller, 2 * count]
            count += 1

    for caller in range(callers):
        threads.run(ask, caller)
    try:
        yield
    finally:
        over.set()
    assert threads.join() == [None] * callers


def kill_connections(streamer, client, times):
    """Break all that the broker has but ours, and each time wait for one more answer."""
    for _ in range(times):
        before = streamer.stats().completed
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        eventually(lambda before=before: streamer.stats().completed > before)


class Callers:
    """A client with threads that ask until they are told to stop, and look at every answer."""

    def __init__(self, server, prefix, seed):
        self.client = RawClient(server, prefix)
        self.sender = server.client()
        self.failures = []
        self.answered = 0
        self._rng = random.Random(seed)
        self._stop = False
        self._threads = [
            threading.Thread(target=self._run, args=(run,), daemon=True)
            for run in (self._ask, self._read)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self):
        """Have what is under way answered, and end."""
        self._stop = True
        for thread in self._threads:
            thread.join(2 * LONG)
            assert not thread.is_alive(), "a request was never answered"
        assert not self.failures, self.failures
        counts = self.client
        self.client.close()
        self.sender.close()
        return counts.accepted, counts.ignored

    def _run(self, run):
        try:
            run()
        except BaseException as error:
            self.failures.append(error)

    def _ask(self):
        while not self._stop and not self.failures:
            batches = [
                [self._rng.randrange(1000) for _ in range(self._rng.choice([1, 1, 3, 20]))]
                for _ in range(self._rng.choice([1, 4, 16]))
            ]
            futures, chunks = self.client.chunks(*batches)
            pipeline = self.sender.pipeline(transaction=False)
            for chunk in chunks:
                pipeline.xadd(self.client.keys.queue, {"m": self.client.message(chunk)})
            pipeline.execute()
            for batch, future in zip(batches, futures, strict=True):
                assert future.result(LONG) == [2 * item for item in batch]
                self.answered += 1

    def _read(self):
        while self._threads[0].is_alive() and not self.failures:
            self.client.read(0.05)


class StreamerCallers:
    """Threads that ask by a RedisStreamer until they are told to stop, and look at every answer."""

    def __init__(self, server, prefix, seed):
        self.streamer = RedisStreamer(server.url, prefix, worker_timeout=LONG)
        self.failures = []
        self._ends = []
        self._stop = False
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(f"{seed}-{n}"),), daemon=True)
            for n in range(8)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self):
        self._stop = True
        for thread in self._threads:
            thread.join(2 * LONG)
            assert not thread.is_alive(), "a request was never answered"
        self.streamer.close()
        assert not self.failures, self.failures
        assert len(self._ends) == len(set(map(id, self._ends))), "a request ended twice"
        return len(self._ends), 0

    @property
    def answered(self):
        return len(self._ends)

    def _run(self, rng):
        try:
            while not self._stop and not self.failures:
                batch = [rng.randrange(1000) for _ in range(rng.choice([1, 1, 3, 100]))]
                future = self.streamer.submit(batch)
                future.add_done_callback(self._ends.append)
                assert future.result(LONG) == [2 * item for item in batch]
        except BaseException as error:
            self.failures.append(error)
