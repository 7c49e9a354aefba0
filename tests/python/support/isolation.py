"""Models that fail for some batches, for the tests of isolate_errors."""

from waits import LONG


class Poisoned:
    """Raises for batches that hold a poisonous item; records its runs."""

    def __init__(self, runs, poison, error=ValueError):
        self.runs = runs
        self.poison = set(poison)
        self.error = error

    def __call__(self, batch):
        self.runs.append(list(batch))
        bad = self.poison.intersection(batch)
        if bad:
            raise self.error(sorted(bad))
        return batch


class Limited:
    """Has no memory for more than `limit` items."""

    def __init__(self, runs, limit, error=MemoryError):
        self.runs = runs
        self.limit = limit
        self.error = error

    def __call__(self, batch):
        self.runs.append(list(batch))
        if len(batch) > self.limit:
            raise self.error(f"{len(batch)} items")
        return batch


class OutOfMemoryError(RuntimeError):
    """As torch has it: known by its name."""


def one_batch(held, gate, model, requests, **settings):
    """Let the model run the requests as one batch; gives the futures when all have ended."""
    gate._predict = lambda batch: batch if batch == ["first"] else model(batch)
    streamer = held(batch_size=sum(map(len, requests)), **settings)
    futures = [streamer.submit(request) for request in requests]
    gate.open()
    for future in futures:
        future.exception(LONG)
    return futures
