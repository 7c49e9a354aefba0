"""What a caller may do with a streamer, and how each request may end: for mixed.py."""

import asyncio
import contextlib
import itertools
import threading
from collections import Counter

from mixed_models import Item, Load, ModelError, pieces_of
from waits import LONG

from service_streamer import (
    CancelledError,
    OutputSizeMismatch,
    QueueFull,
    RequestTimeout,
    StreamerClosed,
    WorkerLost,
)

REQUEST_OPTIONS = {  # one value of each is chosen at random
    "priority": [0, 0, -1, 1],
    "timeout": [LONG, LONG, LONG, 0, 0.001, 0.02],
    "tenant": [None, "one", "two"],
}
BUFFERS = [1, 2, 8, 64]

serials = itertools.count()


class Calls:
    """Sends requests, and checks how they end. Several threads call it.

    Args:
        streamed: `stream` gives the pieces of an item, and not one list of them.
        harm: workers may be lost.
        options: of the streamer.
    """

    def __init__(self, streamed, harm, options):
        self.tally = Counter()
        self.closing = False
        self._allowed = [WorkerLost] if harm else []
        if not streamed:
            self._allowed.append(OutputSizeMismatch)  # for the whole batch
        if options["overflow"] == "reject":
            self._allowed.append(QueueFull)
        self._isolates = options["isolate_errors"]
        self._bad = ("raise", "error") if streamed else ("raise", "error", "short")
        self._streamed = streamed
        self._counting = threading.Lock()
        self._kept = []

    def one(self, streamer, rng):
        """Do something at random."""
        kinds = ["predict", "submit", "read", "read_slowly", "leave", "keep", "map_all", "tasks"]
        kind = rng.choice(kinds)
        options = {name: rng.choice(values) for name, values in REQUEST_OPTIONS.items()}
        getattr(self, kind)(streamer, rng, options)

    # ---------------------------------------------------------------------- whole requests

    def predict(self, streamer, rng, options):
        items = some_items(rng)
        self._check(items, options, lambda: streamer.predict(items, **options))

    def submit(self, streamer, rng, options):
        """Several requests, of which some are cancelled, abandoned or forgotten."""
        with self._ends_allowed([], options):
            sent = []
            for _ in range(rng.choice([1, 1, 5, 20])):
                items = some_items(rng)
                ends = Ends()
                future = streamer.submit(items, **options)
                future.add_done_callback(ends)
                sent.append((items, future, ends))
        what = rng.choice(["read", "read", "cancel", "abandon", "forget"])
        for _, future, _ in sent[::2]:
            if what == "cancel":
                assert not future.cancel() or future.cancelled()
            elif what == "abandon":
                future._abandon()
        if what == "forget":
            return
        for items, future, ends in sent:
            self._check(items, options, lambda f=future: f.result(LONG), cancelled=what != "read")
            assert future.done()
            ends.check()

    def map_all(self, streamer, rng, options):
        items = [item for _ in range(5) for item in some_items(rng)]
        options = {**options, "timeout": LONG}
        outputs = streamer.map(items, chunk_size=3, priority=options["priority"])
        self._check(items, options, lambda: list(outputs))

    # -------------------------------------------------------------------------------- streams

    def read(self, streamer, rng, options, pace=None, most=None):
        item = an_item(rng)
        read = []
        buffer = rng.choice(BUFFERS)
        with self._ends_allowed([item], options, dropped=buffer < item.pieces) as outcome:
            stream = streamer.stream(item, buffer=buffer, **options)
            for piece in stream if most is None else itertools.islice(stream, most):
                read.append(piece)
                if pace is not None:
                    pace.wait(rng.choice([0, 0.001, 0.05]))
            outcome["ended"] = most is None
            if most is not None and rng.random() < 0.5:
                stream.close()
        self._check_pieces(item, read, **outcome)

    def read_slowly(self, streamer, rng, options):
        self.read(streamer, rng, options, pace=threading.Event())

    def leave(self, streamer, rng, options):
        self.read(streamer, rng, options, most=rng.choice([0, 1, 5]))

    def keep(self, streamer, rng, options):
        """Read a part of a stream, and the rest much later."""
        item = an_item(rng)
        with self._ends_allowed([item], options, dropped=True):
            stream = streamer.stream(item, buffer=rng.choice(BUFFERS), **options)
            self._kept.append((item, options, stream, list(itertools.islice(stream, 1))))

    def read_kept(self):
        """Read the rest of the streams that were kept."""
        while self._kept:
            item, options, stream, read = self._kept.pop()
            with self._ends_allowed([item], options, dropped=True) as outcome:
                read += stream
                outcome["ended"] = True
            self._check_pieces(item, read, **outcome)

    # -------------------------------------------------------------------------------- asyncio

    def tasks(self, streamer, rng, options):
        with contextlib.closing(asyncio.new_event_loop()) as loop:
            loop.run_until_complete(self._gather(streamer, rng, options))

    async def _gather(self, streamer, rng, options):
        calls = [rng.choice([self._apredict, self._aread]) for _ in range(5)]
        tasks = [asyncio.ensure_future(call(streamer, rng, options)) for call in calls]
        await asyncio.sleep(rng.choice([0, 0.001, 0.01]))
        for task in tasks:
            if rng.random() < 0.2:
                task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if outcome is not None and not isinstance(outcome, asyncio.CancelledError):
                raise outcome

    async def _apredict(self, streamer, rng, options):
        items = some_items(rng)
        with self._ends_allowed(items, options):
            self._check_outputs(items, await streamer.apredict(items, **options))

    async def _aread(self, streamer, rng, options):
        item = an_item(rng)
        read = []
        buffer = rng.choice(BUFFERS)
        with self._ends_allowed([item], options, dropped=buffer < item.pieces) as outcome:
            async for piece in streamer.astream(item, buffer=buffer, **options):
                read.append(piece)
            outcome["ended"] = True
        self._check_pieces(item, read, **outcome)

    # --------------------------------------------------------------------------------- checks

    @contextlib.contextmanager
    def _ends_allowed(self, items, options, cancelled=False, dropped=False):
        """Let errors pass with which the requests of the block may end."""
        outcome = {}
        allowed = list(self._allowed)
        if not self._isolates or any(item.what in self._bad for item in items):
            allowed.append(ModelError)
        if options["timeout"] < LONG:
            allowed.append(RequestTimeout)
        if cancelled:
            allowed.append(CancelledError)
        if dropped:
            allowed.append(QueueFull)
        try:
            yield outcome
            name = "answered"
        except Exception as error:
            if self.closing:  # it may have begun after the request
                allowed.append(StreamerClosed)
            if not isinstance(error, tuple(allowed)):
                raise
            guilty = {item.serial for item in items if item.what}
            others = isinstance(error, ModelError) and not guilty.issuperset(error.args)
            if others and self._isolates:
                raise AssertionError(f"the error of another item: {items}") from error
            name = type(error).__name__
        with self._counting:
            self.tally[name] += 1

    def _check(self, items, options, result, cancelled=False):
        with self._ends_allowed(items, options, cancelled):
            self._check_outputs(items, result())

    def _check_outputs(self, items, outputs):
        assert not any(item.what in self._bad for item in items), items
        assert [list(output) for output in outputs] == [pieces_of(item) for item in items]

    def _check_pieces(self, item, read, ended=False):
        if not self._streamed:
            read = read[0] if read else []
            assert not ended or read, "a stream without a piece"
        expected = pieces_of(item)
        assert read == expected[: len(read)], (item, read)
        if ended:
            assert item.what not in self._bad, item
            assert len(read) == item.pieces, (item, f"{len(read)} pieces")
        with self._counting:
            self.tally["pieces"] += len(read)


class Ends:
    """Counts how often a request ends: a done callback."""

    def __init__(self):
        self._ended = threading.Semaphore(0)

    def __call__(self, _):
        self._ended.release()

    def check(self):
        assert self._ended.acquire(timeout=LONG), "no callback"
        assert not self._ended.acquire(blocking=False), "a request ended twice"


def an_item(rng):
    what = rng.choice(["", "", "", "", "", "slow", "error", "raise", "short"])
    serial = next(serials)
    load = Load.of(serial) if rng.random() < 0.1 else None
    return Item(serial, rng.choice([1, 2, 3, 10, 100]), what, load)


def some_items(rng):
    items = [an_item(rng) for _ in range(rng.choice([0, 1, 1, 2, 10, 40]))]
    return items if rng.random() < 0.2 else [i._replace(what="") for i in items]
