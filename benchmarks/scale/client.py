"""A client process: callers, a sender and a reader behind one GIL."""

from __future__ import annotations

import collections
import random

from .costs import Costs
from .events import Loop, Thread
from .queue_server import Group, QueueServer, take

FLUSH = 256  # most requests in one message


class Latencies:
    """The latencies of requests that were answered after a time, and their number."""

    def __init__(self, since: float) -> None:
        self.count = 0
        self._since = since
        self._all: list[tuple[float, int]] = []

    def add(self, now: float, group: Group) -> None:
        """Record answered requests."""
        if now >= self._since:
            self.count += group[1]
            self._all.append((now - group[2], group[1]))

    def quantile(self, share: float) -> float:
        """Return the latency that `share` of the requests do not exceed, in seconds."""
        left = share * self.count
        for latency, count in sorted(self._all):
            left -= count
            if left <= 0:
                return latency
        return float("nan")


class Client:
    """Sends the requests of its callers, many at a time, and has one message on the way.

    Its sender sleeps until there are requests, so some more come until it runs.

    Args:
        loop: of the simulation.
        server: of its queue.
        thread: its GIL.
        costs: of its work.
        size: bytes of a request and of an answer.
        latencies: where answered requests are recorded.
    """

    def __init__(
        self,
        loop: Loop,
        server: QueueServer,
        thread: Thread,
        costs: Costs,
        size: float,
        latencies: Latencies,
    ) -> None:
        self.loop = loop
        self.thread = thread
        self.costs = costs
        self._server = server
        self._size = size
        self._latencies = latencies
        self._sending = False
        server.read(self)

    def receive(self, groups: list[Group]) -> None:
        """Answers have arrived."""
        count = sum(group[1] for group in groups)
        self.thread.run(self.costs.receive.of(count, self._size), self.end, groups)

    def end(self, groups: list[Group]) -> None:
        """Give the answers to the callers, and wait for more."""
        for group in groups:
            self._latencies.add(self.loop.now, group)
        self.loop.after(self.costs.hop, self._server.read, self)

    # Of subclasses: the requests that wait for the sender.

    def has_more(self) -> bool:
        """Return True if requests can be sent now. If not, `wake` is called when there are some."""
        raise NotImplementedError

    def take(self) -> tuple[int, float]:
        """Take requests that can be sent. Return how many, and when they were made on average."""
        raise NotImplementedError

    def wake(self) -> None:
        """Send what is there, unless the last message is still on its way."""
        if not self._sending and self.has_more():
            self._sending = True
            self.loop.after(self.costs.hop, self.thread.run, self.costs.send.call, self._take)

    def _take(self) -> None:
        count, made = self.take()
        seconds = self.costs.send.of(count, self._size) - self.costs.send.call
        self.thread.run(seconds, self._send, (self, count, made))

    def _send(self, group: Group) -> None:
        self.loop.after(self.costs.hop, self._server.append, group, self._confirm)

    def _confirm(self) -> None:
        self._sending = False
        self.wake()


class ClosedClient(Client):
    """A client whose callers ask again as soon as they have an answer, one after the other."""

    def start(self, callers: int) -> None:
        """Let callers begin."""
        self._made: collections.deque[Group] = collections.deque()
        self._next(callers)

    def receive(self, groups: list[Group]) -> None:
        self.thread.run(self.costs.receive.call, self.end, groups)

    def end(self, groups: list[Group]) -> None:
        super().end(groups)
        self._next(sum(group[1] for group in groups))

    def _next(self, callers: int) -> None:
        if callers:
            self.thread.run(
                self.costs.receive.of(1, self._size) - self.costs.receive.call, self._ask, callers
            )

    def _ask(self, callers: int) -> None:
        self._made.append((self, 1, self.loop.now))
        self.wake()
        self._next(callers - 1)

    def has_more(self) -> bool:
        return bool(self._made)

    def take(self) -> tuple[int, float]:
        groups, count = take(self._made, FLUSH)
        return count, sum(group[2] for group in groups) / count


class OpenClient(Client):
    """A client whose requests come at random, at a rate that answers do not change."""

    def start(self, rate: float, generator: random.Random) -> None:
        """Let requests come: `rate` per second on average."""
        self._rate = rate
        self._random = generator
        self._since = self.loop.now
        self._waiting = 0
        self.loop.after(generator.expovariate(rate), self._first)

    def has_more(self) -> bool:
        self._arrive()
        if not self._waiting:
            self.loop.after(self._random.expovariate(self._rate), self._first)
        return self._waiting > 0

    def take(self) -> tuple[int, float]:
        made = (self._since + self.loop.now) / 2
        self._arrive()
        count = min(self._waiting, FLUSH)
        self._waiting -= count
        return count, made

    def _first(self) -> None:
        self._waiting += 1
        self._since = self.loop.now
        self.wake()

    def _arrive(self) -> None:
        mean = self._rate * (self.loop.now - self._since)
        self._since = self.loop.now
        self._waiting += _poisson(self._random, mean) if mean else 0


def _poisson(generator: random.Random, mean: float) -> int:
    """Return a number of arrivals."""
    if mean > 30:
        return max(0, round(generator.gauss(mean, mean**0.5)))
    count, left = 0, generator.expovariate(1.0)
    while left < mean:
        count += 1
        left += generator.expovariate(1.0)
    return count
