"""A worker machine: fetchers, a gateway and model processes."""

from __future__ import annotations

import collections
import dataclasses

from .client import Client
from .costs import Costs
from .events import Loop, Thread
from .queue_server import Group, Queue, QueueServer


@dataclasses.dataclass(frozen=True)
class Model:
    """What the model costs: a batch takes `fixed` + `each` per item, in seconds without a core."""

    fixed: float
    each: float
    batch_size: int = 64
    linger: float = 0.0
    """most seconds that an idle model waits for callers that have just got their answers"""

    def per_second(self) -> float:
        """Return how many requests it answers in full batches."""
        return self.batch_size / (self.fixed + self.each * self.batch_size)


Answers = dict[QueueServer, dict[Client, list[Group]]]

Taken = tuple["Fetcher", Group]
"""requests, and where their answers go"""


class Fetcher:
    """Fetches from one server while the worker has room."""

    def __init__(self, worker: Worker, server: QueueServer) -> None:
        self.server = server
        self.full = False  # the last fetch got all that it asked for
        self._worker = worker
        self._asked = 0

    def wake(self) -> None:
        """Ask for requests if there is room."""
        most = 0 if self._asked else self._worker.room(self)
        if most:
            self._asked = most
            self._worker.loop.after(self._worker.costs.hop, self.server.fetch, self, most)

    def arrive(self, groups: list[Group], count: int) -> None:
        """Requests have arrived."""
        was, self.full = self.full, count == self._asked
        self._worker.full += self.full - was
        self._worker.arrive(self, groups, count)

    def taken(self) -> None:
        """Go on: the requests are in the engine."""
        self._asked = 0
        self.wake()


class Worker:
    """Reads all servers of a queue, and runs batches.

    Args:
        loop: of the simulation.
        servers: of the queue.
        gateway: the Python threads that move requests, behind one GIL.
        engine: the C++ thread between them and the processes. It does half of the work.
        processes: those of the model.
        model: what they run.
        costs: of the work besides the model.
        size: bytes of a request and of an answer.
        queue: of the servers.
    """

    def __init__(
        self,
        loop: Loop,
        servers: list[QueueServer],
        gateway: Thread,
        engine: Thread,
        processes: list[Thread],
        model: Model,
        costs: Costs,
        size: float,
        queue: Queue,
    ) -> None:
        self.loop = loop
        self.costs = costs
        self.batches = self.items = 0
        self._gateway = gateway
        self._engine = engine
        self._idle = list(processes)
        self._model = model
        self._size = size
        self._queue = queue
        self.full = 0  # fetchers whose last fetch got all that it asked for
        self._prefetch = costs.server.prefetch
        self._most = (1 + self._prefetch) * model.batch_size * len(processes)
        self._unanswered = 0
        self._here: collections.deque[Taken] = collections.deque()
        self._waiting = 0  # requests in _here
        self._expected = 0  # callers that have just got their answers
        self._due: float | None = None  # when to stop waiting for them
        self.fetchers = [Fetcher(self, server) for server in servers]
        for fetcher in self.fetchers:
            fetcher.wake()

    def room(self, fetcher: Fetcher) -> int:
        """Return how many requests a fetcher may ask for."""
        most = self._most
        if self._queue.workers > 1:
            share = self._queue.length / self._queue.workers
            most = int(min(max(share, self._most / 2), self._most))
        free = most - self._unanswered
        if free <= 0 or (self._unanswered and not self._prefetch):
            return 0
        return max(1, free // (self.full if fetcher.full else len(self.fetchers)))

    def arrive(self, fetcher: Fetcher, groups: list[Group], count: int) -> None:
        """Requests have arrived."""
        self._unanswered += count
        cost = self.costs.take.of(count, self._size)
        self._gateway.run(cost / 2, self._take, fetcher, groups, count, cost / 2)

    def _take(self, fetcher: Fetcher, groups: list[Group], count: int, left: float) -> None:
        fetcher.taken()
        self._engine.run(left, self._submit, fetcher, groups, count)

    def _submit(self, fetcher: Fetcher, groups: list[Group], count: int) -> None:
        self._here.extend((fetcher, group) for group in groups)
        self._waiting += count
        self._start()

    def _start(self, late: bool = False) -> None:
        while self._idle and self._waiting:
            wanted = min(self._expected, self._model.batch_size)
            if self._waiting < wanted and self._model.linger and not late:
                if self._due is None:
                    self._due = self.loop.now + self._model.linger
                    self.loop.after(self._model.linger, self._lingered, self._due)
                return
            self._run(self._idle.pop())

    def _lingered(self, due: float) -> None:
        if self._due == due:
            self._start(late=True)

    def _run(self, process: Thread) -> None:
        self._due = None
        count = left = min(self._waiting, self._model.batch_size)
        self.batches += 1
        self.items += count
        self._waiting -= count
        batch: list[Taken] = []
        while left:
            fetcher, (client, number, made) = self._here.popleft()
            if number > left:
                self._here.appendleft((fetcher, (client, number - left, made)))
                number = left
            batch.append((fetcher, (client, number, made)))
            left -= number
        cost = self.costs.model.of(count, self._size)
        seconds = self._model.fixed + self._model.each * count
        process.run(cost, self.loop.after, seconds, self._end, process, batch, count)

    def _end(self, process: Thread, batch: list[Taken], count: int) -> None:
        self._idle.append(process)
        self._expected = count
        by_server: Answers = {}
        for fetcher, group in batch:
            answers = by_server.setdefault(fetcher.server, {})
            answers.setdefault(group[0], []).append(group)
        cost = self.costs.answer
        seconds = cost.of(count, self._size) + (len(by_server) - 1) * cost.call
        self._engine.run(
            seconds / 2, self._gateway.run, seconds / 2, self._answer, by_server, count
        )
        self._start()

    def _answer(self, by_server: Answers, count: int) -> None:
        self._unanswered -= count
        for server, answers in by_server.items():
            self.loop.after(self.costs.hop, server.finish, answers)
        for fetcher in self.fetchers:
            fetcher.wake()
