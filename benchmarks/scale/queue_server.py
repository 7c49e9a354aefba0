"""A server that holds a queue: a Redis server, a node of a cluster, or an owner actor of Ray."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import TYPE_CHECKING

from service_streamer._redis.gateway.lease_keeper import chance_of_turn

from .costs import ServerCosts
from .events import Loop, Thread

if TYPE_CHECKING:
    from .client import Client
    from .worker import Fetcher

TICK = 0.01  # s between two jobs that stand for the rounds of all workers

Group = tuple["Client", int, float]
"""requests of one client that were sent together: the client, how many, and when they were made"""


class Queue:
    """All servers of a queue.

    Attributes:
        length: requests that wait or are at workers.
        workers: how many share it.
    """

    def __init__(self, workers: int) -> None:
        self.length = 0
        self.workers = workers


class QueueServer:
    """Requests wait here in the order of arrival. It does one thing at a time.

    Args:
        loop: of the simulation.
        thread: that does its work.
        costs: of its work.
        size: bytes of a request and of an answer.
        hop: seconds of a message to or from it.
        queue: to which it belongs.
    """

    def __init__(
        self, loop: Loop, thread: Thread, costs: ServerCosts, size: float, hop: float, queue: Queue
    ) -> None:
        self.thread = thread
        self._loop = loop
        self._costs = costs
        self._size = size
        self._hop = hop
        self._waiting: collections.deque[Group] = collections.deque()
        self._queued = 0  # requests in _waiting
        self._leased = 0  # requests at workers
        self._queue = queue
        self._blocked: collections.deque[tuple[Fetcher, int]] = collections.deque()
        self._replies: dict[Client, list[Group]] = {}
        self._reading: set[Client] = set()  # clients that wait for replies
        if costs.rounds:
            loop.after(TICK, self._keep)

    # Each method is called when the message has arrived.

    def append(self, group: Group, confirm: Callable[[], None]) -> None:
        """Add requests, and confirm it to the client."""
        seconds = self._costs.append.of(group[1], self._size)
        seconds += len(self._blocked) * self._costs.blocked
        self.thread.run(seconds, self._append, group, confirm)

    def fetch(self, fetcher: Fetcher, most: int) -> None:
        """Give requests to a worker, now or when there are some."""
        self.thread.run(self._costs.fetch.call, self._fetch, fetcher, most)

    def finish(self, answers: dict[Client, list[Group]]) -> None:
        """Pass the answers of a batch to their clients, and forget the requests."""
        count = sum(group[1] for groups in answers.values() for group in groups)
        reply = self._costs.reply
        seconds = self._costs.finish.of(count) + reply.of(count, self._size)
        seconds += (len(answers) - 1) * reply.call
        self.thread.run(seconds, self._finish, answers, count)

    def read(self, client: Client) -> None:
        """Give replies to a client, now or when there are some."""
        self.thread.run(self._costs.read, self._read, client)

    # -------------------------------------------------------------------- private

    def _append(self, group: Group, confirm: Callable[[], None]) -> None:
        self._waiting.append(group)
        self._queued += group[1]
        self._queue.length += group[1]
        self._loop.after(self._hop, confirm)
        while self._blocked and self._queued:
            fetcher, most = self._blocked.popleft()
            self._give(fetcher, 1 if self._costs.one_each else most)

    def _fetch(self, fetcher: Fetcher, most: int) -> None:
        if self._queued:
            self._give(fetcher, most)
        else:
            self._blocked.append((fetcher, most))

    def _give(self, fetcher: Fetcher, most: int) -> None:
        groups, count = take(self._waiting, most)
        self._queued -= count
        self._leased += count
        seconds = self._costs.fetch.of(count, self._size) - self._costs.fetch.call
        self.thread.run(seconds, self._loop.after, self._hop, fetcher.arrive, groups, count)

    def _finish(self, answers: dict[Client, list[Group]], count: int) -> None:
        self._leased -= count
        self._queue.length -= count
        for client, groups in answers.items():
            self._replies.setdefault(client, []).extend(groups)
            if client in self._reading:
                self._pass(client)

    def _read(self, client: Client) -> None:
        if client in self._replies:
            self._pass(client)
        else:
            self._reading.add(client)

    def _pass(self, client: Client) -> None:
        self._reading.discard(client)
        self._loop.after(self._hop, client.receive, self._replies.pop(client))

    def _keep(self) -> None:
        costs, leases, workers = self._costs, self._leased, self._queue.workers
        turns = workers * chance_of_turn(workers)
        seconds = workers * costs.touch + leases * costs.beat
        seconds += turns * (costs.claim.of(leases) + costs.clean.of(workers))
        self.thread.run(TICK * costs.rounds * seconds, self._loop.after, TICK, self._keep)


def take(waiting: collections.deque[Group], most: int) -> tuple[list[Group], int]:
    """Remove up to `most` requests from the front. Return them, and how many they are."""
    taken: list[Group] = []
    left = most
    while waiting and left:
        client, count, made = waiting.popleft()
        if count > left:
            waiting.appendleft((client, count - left, made))
            count = left
        taken.append((client, count, made))
        left -= count
    return taken, most - left
