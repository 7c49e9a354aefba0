"""Waiting for what is about to happen. Imported by spawned workers, so it is light."""

import threading
import time

LONG = 30  # seconds: longer than anything here takes; reached only by a failure


def eventually(predicate, timeout=LONG):
    """Wait until something that no event announces is true."""
    deadline = time.monotonic() + timeout
    tick = threading.Event()
    while not predicate():
        assert time.monotonic() < deadline, "it did not become true"
        tick.wait(0.001)


async def settled():
    """Let every task run until it waits."""
    import asyncio

    for _ in range(5):
        await asyncio.sleep(0)


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
