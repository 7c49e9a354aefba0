"""Step models for the tests. Imported by spawned workers, so it is light and has no tests."""

import os
import threading

from waits import LONG

from service_streamer import StepModel


def down(item):
    """The outputs of a `Countdown` for an item."""
    return list(range(item, 0, -1))


class Countdown(StepModel):
    """Gives n, n - 1, ... 1 for an item n."""

    def __init__(self, gpu_id=None):
        super().__init__(gpu_id)
        self.dropped = []

    def admit(self, items):
        return [[item, item] for item in items]

    def step(self, states):
        results = [(left, left == 1) for _, left in states]
        for state in states:
            state[1] -= 1
        return results

    def drop(self, states):
        self.dropped += [item for item, _ in states]


class Stepped(Countdown):
    """Does a step only when the test lets it."""

    def __init__(self):
        super().__init__()
        self._permits = threading.Semaphore(0)
        self._entered = threading.Semaphore(0)
        self._free = threading.Event()
        self.steps = []
        """the items of each step"""

    def step(self, states):
        self.steps.append([item for item, _ in states])
        self._entered.release()
        while not self._free.is_set() and not self._permits.acquire(timeout=0.01):
            pass
        return super().step(states)

    def wait_entered(self):
        """Wait until one more step has begun."""
        assert self._entered.acquire(timeout=LONG), "no step came"

    def let(self, steps=1):
        """Let some steps end, and wait until the one after them has begun."""
        for _ in range(steps):
            self._permits.release()
            self.wait_entered()

    def free(self):
        """Let all steps go."""
        self._free.set()


class Choosy(Countdown):
    """Raises for chosen items, before anything has changed."""

    def __init__(self, bad_to_admit=(), bad_to_step=(), error=ValueError):
        super().__init__()
        self._bad_to_admit = set(bad_to_admit)
        self._bad_to_step = set(bad_to_step)
        self._error = error
        self.calls = []

    def admit(self, items):
        self.calls.append(list(items))
        if self._bad_to_admit & set(items):
            raise self._error("admit")
        return super().admit(items)

    def step(self, states):
        if self._bad_to_step & {item for item, _ in states}:
            raise self._error("step")
        return super().step(states)


class Told(Countdown):
    """Records what it admits and drops. An item 0 is never done, and has one output, the pid."""

    def init_model(self, journal=None):
        self._journal = journal

    def admit(self, items):
        for item in items:
            self._tell("admit", item)
        return super().admit(items)

    def step(self, states):
        endless = {id(state) for state in states if state[0] == 0}
        first = {id(state) for state in states if state[:2] == [0, 0]}
        results = super().step(states)
        for index, state in enumerate(states):
            if id(state) in endless:
                results[index] = (os.getpid() if id(state) in first else None, False)
        return results

    def drop(self, states):
        for item, _ in states:
            self._tell("drop", item)

    def _tell(self, what, item):
        if self._journal is not None:
            self._journal.append((what, item))


class BadStep(Countdown):
    """Raises in each step with an item 3."""

    def step(self, states):
        if any(item == 3 for item, _ in states):
            raise ValueError("three")
        return super().step(states)


class Unpicklable(Countdown):
    """Has outputs that cannot be pickled for items above 5."""

    def step(self, states):
        results = super().step(states)
        return [
            (threading.Lock() if state[0] > 5 else output, done)
            for state, (output, done) in zip(states, results, strict=True)
        ]
