"""What the broker alone can do: the commands of a RedisStreamer and a worker, sent by one thread.

It sends the same commands, with messages of the same size, on as many connections, and waits for
the same replies. But nothing is pickled, and there are no callers, queues or models.
"""

from __future__ import annotations

import collections
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any

import hiredis
from compare import adapters, broker

from cases import common

QUEUE, REPLIES, GROUP, WORKER, FIELD = "{ss:}:q", "{ss:}:r:" + 32 * "0", "w", "worker", "m"
REQUEST, ANSWER = 72 * b"q", 48 * b"a"  # a request of a small number, and its part of a reply
BLOCK_MS, HOUR_MS = 5000, 3_600_000
TRIM_BYTES = 2**16  # bytes read, after which the stream of replies is trimmed

pack = hiredis.pack_command
XADD = pack(("XADD", QUEUE, "*", FIELD, REQUEST))
XLEN = pack(("XLEN", QUEUE))
MULTI, EXEC = pack(("MULTI",)), pack(("EXEC",))
PEXPIRE = pack(("PEXPIRE", REPLIES, HOUR_MS))


class Link:
    """A connection. Passes each reply that comes to `take`."""

    def __init__(self, address: str, take: Callable[[Any], None]) -> None:
        host, _, port = address.partition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send = self.socket.sendall
        self._take = take
        self._reader = hiredis.Reader(notEnoughData=self)
        self._buffer = bytearray(2**17)

    def read(self) -> None:
        size = self.socket.recv_into(self._buffer)
        self._reader.feed(self._buffer, 0, size)
        while (reply := self._reader.gets()) is not self:
            if isinstance(reply, Exception) or not size:
                raise reply if size else ConnectionError("the server has closed the connection")
            self._take(reply)


class Exchange:
    """Requests of a closed loop: sent, fetched, answered and read. Each goes out again at once."""

    def __init__(self, address: str, loop: common.ClosedLoop) -> None:
        self._loop = loop
        self._sent: collections.deque[tuple[int, float]] = collections.deque()  # client, when
        self._last, self._untrimmed = b"0-0", 0
        self._sender = Link(address, self._ignore)
        self._fetcher = Link(address, self._fetched)
        self._replier = Link(address, self._ignore)
        self._reader = Link(address, self._answered)
        self._selector = selectors.DefaultSelector()
        for link in (self._sender, self._fetcher, self._replier, self._reader):
            self._selector.register(link.socket, selectors.EVENT_READ, link.read)
        self._sender.send(pack(("XGROUP", "CREATE", QUEUE, GROUP, "0", "MKSTREAM")))
        self._sender.read()
        self._fetch()
        self._read()
        self._send(range(len(loop.calls)))

    def run(self, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            for key, _ in self._selector.select():
                key.data()

    def _ignore(self, reply: Any) -> None:
        """The IDs of entries, the length of the queue, and what a transaction has done."""

    def _send(self, clients: Any) -> None:
        now = time.perf_counter()
        self._sent.extend((client, now) for client in clients)
        self._sender.send(XADD * len(clients) + XLEN)

    def _fetch(self) -> None:
        read = ("GROUP", GROUP, WORKER, "COUNT", adapters.BATCH_SIZE, "BLOCK", BLOCK_MS)
        self._fetcher.send(pack(("XREADGROUP", *read, "STREAMS", QUEUE, ">")) + XLEN)

    def _fetched(self, reply: Any) -> None:
        if not isinstance(reply, list):  # the length
            self._fetch()
            return
        ids = [entry for entry, _ in reply[0][1]]
        commands = (
            *(MULTI, pack(("XADD", REPLIES, "*", FIELD, len(ids) * ANSWER)), PEXPIRE),
            *(pack(("XACK", QUEUE, GROUP, *ids)), pack(("XDEL", QUEUE, *ids)), EXEC),
        )
        self._replier.send(b"".join(commands))

    def _read(self) -> None:
        read = pack(("XREAD", "COUNT", 100, "BLOCK", BLOCK_MS, "STREAMS", REPLIES, self._last))
        if self._untrimmed >= TRIM_BYTES:
            self._untrimmed = 0
            read = pack(("XTRIM", REPLIES, "MINID", self._last)) + read
        self._reader.send(read)

    def _answered(self, reply: Any) -> None:
        if not isinstance(reply, list):  # how many entries were trimmed
            return
        sizes = [len(fields[1]) for _, fields in reply[0][1]]
        self._last = reply[0][1][-1][0]
        self._untrimmed += sum(sizes)
        self._read()
        now, answered = time.perf_counter(), []
        for _ in range(sum(sizes) // len(ANSWER)):
            client, sent = self._sent.popleft()
            self._loop.calls[client].append(now - sent)
            answered.append(client)
        self._send(answered)


def main() -> None:
    options = common.arguments(__doc__, clients=1)
    loop = common.ClosedLoop(options.clients)
    exchange = Exchange(broker.start_server(), loop)
    exchange.run(common.warm_up(options.seconds))
    loop.mark()
    exchange.run(options.seconds)
    loop.mark()
    common.answer(loop.metrics())
    common.leave()


if __name__ == "__main__":
    main()
