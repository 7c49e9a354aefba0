"""Models that run in threads, and what a test can see of them."""

import threading

from waits import LONG


def double(batch):
    return [2 * item for item in batch]


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


class Log(list):
    """`Journal` for models in threads."""

    def all(self):
        return self


class Indexed:
    """A sequence that is no list: it has a length and can be indexed."""

    def __init__(self, items):
        self._items = items

    def __len__(self):
        return len(self._items)

    def __getitem__(self, index):
        return self._items[index]


class OddError(Exception):
    """Cannot be made from its args."""

    def __init__(self, code, *, detail):
        super().__init__(code)
        self.detail = detail
