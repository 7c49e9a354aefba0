"""Passes the pieces of streams from the processes of a worker to clients, through the broker."""

from __future__ import annotations

import dataclasses
import os
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from ..._streams.hub import CLIENT, Address
from ..._streams.listening import Listener
from ..._streams.moving import Kind, Link
from ..protocol import REPLY_EXPIRY_MS, Keys, Signer
from ..shards import Shard, unpack_reader
from ..stream_frames import PIECES, Frame
from ..stream_posting import StreamPoster
from .stream_receipts import ReceiptReader


class _Way(NamedTuple):
    """To the clients of one shard."""

    keys: Keys
    poster: StreamPoster
    receipts: ReceiptReader


@dataclasses.dataclass
class _Route:
    """One run of one stream."""

    link: Link
    """the link to the process of the model"""
    number: int
    """the number of the stream on this link"""
    way: _Way
    """the way to the client"""
    key: bytes
    """the key of the client's reply stream"""
    reader: int
    """the number of the stream in its client"""
    run: bytes
    pieces: int = 0


class StreamRelay:
    """A `Receiver` for the writers of a worker. Its threads start with the first stream.

    Args:
        shards: of the queue.
        signer: of the messages.
    """

    def __init__(self, shards: Sequence[Shard], signer: Signer) -> None:
        relay = os.urandom(16)
        secret = secrets.token_hex(16)
        self._routes: dict[tuple[Link, int], _Route] = {}
        self._by_run: dict[bytes, _Route] = {}
        self._ways = [
            _Way(
                shard.keys,
                StreamPoster(shard.broker, signer, PIECES, relay, REPLY_EXPIRY_MS),
                ReceiptReader(shard, signer, relay, self._take),
            )
            for shard in shards
        ]
        self._listener = Listener(self, secret)
        self.address = Address(secret, 0, 0, self._listener.name)
        """the address where the processes of the worker connect"""

    def start(self) -> None:
        """Begin to accept writers, because a request of a stream has come. May be called again."""
        self._listener.start()

    def stop(self) -> None:
        """Send the rest, and end the threads. Called after the processes have ended."""
        self._listener.close()
        for way in self._ways:
            way.poster.stop()
        for way in self._ways:
            way.poster.thread.join(None)
            way.receipts.stop()
        self._ways.clear()  # they call this object
        del self._listener

    # ---------------------------------------------------------------- in the mover's thread

    def receive(self, link: Link, kind: int, number: int, payload: bytes) -> None:
        """Handle a message of a process of the worker."""
        if kind == Kind.OPEN:
            try:
                address = Address.unpack(payload[8:])
                client, shard = unpack_reader(bytes.fromhex(address.hub.removeprefix(CLIENT)))
                way = self._ways[shard]
            except (ValueError, IndexError):  # of the request of a damaged or foreign client
                link.post(Kind.CLOSED, number)
                link.flush()
                return
            key = way.keys.replies(client)
            route = _Route(link, number, way, key, address.number, payload[:8])
            self._routes[link, number] = self._by_run[route.run] = route
            way.poster.thread.start()
            way.receipts.thread.start()
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
        route.way.poster.add(route.key, frame)

    def _forget(self, route: _Route) -> None:
        self._routes.pop((route.link, route.number), None)
        self._by_run.pop(route.run, None)

    # ---------------------------------------------------------------- in the threads of receipts

    def _take(self, frame: Frame) -> None:
        route = self._by_run.get(frame.run)
        if route is not None and frame.kind in (Kind.TAKEN, Kind.CLOSED):
            route.link.post(Kind(frame.kind), route.number, frame.payload)
            route.link.flush_soon()
            if frame.kind == Kind.CLOSED:
                self._forget(route)
