"""Passes the pieces of streams from the processes of a worker to clients, through the broker."""

from __future__ import annotations

import dataclasses
import os
import secrets
from typing import Any

from redis.exceptions import ResponseError

from .._errors import BrokerError
from .._streams.hub import CLIENT, Address
from .._streams.listening import Listener
from .._streams.moving import Kind, Link
from .._waiting.threads import Condition, NativeThread
from .broker import Broker
from .protocol import FIELD, REPLY_EXPIRY_MS, BadSignature, Keys, MalformedMessage, Signer
from .session import Backoff
from .stream_frames import PIECES, RECEIPTS, Frame, is_kind, unpack
from .stream_posting import StreamPoster


@dataclasses.dataclass
class _Route:
    """One run of one stream."""

    link: Link
    """to the process of the model"""
    number: int
    """of the stream on this link"""
    key: bytes
    """of the client's reply stream"""
    reader: int
    """the number of the stream in its client"""
    run: bytes
    pieces: int = 0


class StreamRelay:
    """A `Receiver` for the writers of a worker. Its threads start with the first stream.

    Args:
        broker: of the queue.
        keys: of the queue.
        signer: of the messages.
    """

    def __init__(self, broker: Broker, keys: Keys, signer: Signer) -> None:
        relay = os.urandom(16)
        secret = secrets.token_hex(16)
        self._keys = keys
        self._signer = signer
        self._broker = broker
        self._receipts = keys.receipts(relay)
        self._routes: dict[tuple[Link, int], _Route] = {}
        self._by_run: dict[bytes, _Route] = {}
        self._poster = StreamPoster(broker, signer, PIECES, relay, REPLY_EXPIRY_MS)
        self._connection = broker.connection()
        self._reader = NativeThread(self._read, "service-streamer-receipts")
        self._stopping = False
        self._changed = Condition()
        self._listener = Listener(self, secret)
        self.address = Address(secret, 0, 0, self._listener.name)
        """where the processes of the worker connect"""

    def start(self) -> None:
        """Begin to accept writers, because a request of a stream has come. May be called again."""
        self._listener.start()

    def stop(self) -> None:
        """Send the rest, and end the threads. Called after the processes have ended."""
        self._listener.close()
        self._poster.stop()
        self._poster.thread.join(None)
        self._stopping = True
        self._connection.interrupt()
        self._changed.notify()
        self._reader.join(None)

    # ---------------------------------------------------------------- in the mover's thread

    def receive(self, link: Link, kind: int, number: int, payload: bytes) -> None:
        """Handle a message of a process of the worker."""
        if kind == Kind.OPEN:
            address = Address.unpack(payload[8:])
            key = self._keys.replies(bytes.fromhex(address.hub.removeprefix(CLIENT)))
            route = _Route(link, number, key, address.number, payload[:8])
            self._routes[link, number] = self._by_run[route.run] = route
            self._poster.thread.start()
            self._reader.start()
            self._send(route, kind, b"")
        elif (found := self._routes.get((link, number))) is not None:
            self._send(found, kind, payload)
            if kind == Kind.PIECE:
                found.pieces += 1
            elif kind == Kind.END:
                self._forget(found)

    def lose(self, link: Link) -> None:
        """Handle the end of a process of the worker."""
        for route in [each for each in self._routes.values() if each.link is link]:
            self._forget(route)

    def _send(self, route: _Route, kind: int, payload: bytes) -> None:
        frame = Frame(route.reader, kind, route.run, route.pieces, payload)
        self._poster.add(route.key, frame)

    def _forget(self, route: _Route) -> None:
        self._routes.pop((route.link, route.number), None)
        self._by_run.pop(route.run, None)

    # ---------------------------------------------------------------- the reader of receipts

    def _read(self) -> None:
        last = b"0-0"
        backoff = Backoff()
        try:
            while not self._stopping:
                try:
                    last = self._read_once(last)
                    backoff.reset()
                except (BrokerError, ResponseError):  # also UNBLOCKED: the stream was deleted
                    self._changed.wait_for(lambda: self._stopping, backoff.next())
        finally:
            self._connection.close()

    def _read_once(self, last: bytes) -> bytes:
        block = ("BLOCK", self._broker.block_ms(60.0))
        found = self._connection.execute("XREAD", *block, "STREAMS", self._receipts, last)
        for entry, fields in found[0][1] if found else []:
            last = entry
            self._take(fields)
        if found:
            ms, _, count = last.partition(b"-")
            self._connection.execute(
                "XTRIM", self._receipts, "MINID", b"%s-%d" % (ms, int(count) + 1)
            )
        return last

    def _take(self, fields: Any) -> None:
        if not fields or fields[0] != FIELD:
            return
        try:
            message = self._signer.open(self._receipts, fields[1])
            frames = unpack(message)[1] if is_kind(message, RECEIPTS) else []
        except (MalformedMessage, BadSignature):
            return
        for frame in frames:
            route = self._by_run.get(frame.run)
            if route is not None and frame.kind in (Kind.TAKEN, Kind.CLOSED):
                route.link.post(Kind(frame.kind), route.number, frame.payload)
                route.link.flush_soon()
                if frame.kind == Kind.CLOSED:
                    self._forget(route)
