"""Reads the receipts of clients for the relay of a worker, from one shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redis.exceptions import ResponseError

from ..._base.errors import BrokerError
from ..._waiting.backoff import Backoff
from ..._waiting.threads import Condition, NativeThread
from ..protocol import FIELD, BadSignature, MalformedMessage, Signer
from ..shards import Shard
from ..stream_frames import RECEIPTS, Frame, is_kind, unpack


class ReceiptReader:
    """Calls a function with each receipt, in its thread. Start `thread` first.

    Args:
        shard: of the queue.
        signer: of the messages.
        relay: the ID of the relay: 16 bytes.
        take: is called with each receipt.
    """

    def __init__(
        self, shard: Shard, signer: Signer, relay: bytes, take: Callable[[Frame], None]
    ) -> None:
        self._broker = shard.broker
        self._receipts = shard.keys.receipts(relay)
        self._signer = signer
        self._take = take
        self._connection = shard.broker.connection()
        self._stopping = False
        self._changed = Condition()
        self.thread = NativeThread(self._read, "service-streamer-receipts")

    def stop(self) -> None:
        """End the thread, and wait for that."""
        self._stopping = True
        self._connection.interrupt()
        self._changed.notify()
        self.thread.join(None)

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
            self._open(fields)
        if found:
            ms, _, count = last.partition(b"-")
            self._connection.execute(
                "XTRIM", self._receipts, "MINID", b"%s-%d" % (ms, int(count) + 1)
            )
        return last

    def _open(self, fields: Any) -> None:
        if not fields or fields[0] != FIELD:
            return
        try:
            message = self._signer.open(self._receipts, fields[1])
            frames = unpack(message)[1] if is_kind(message, RECEIPTS) else []
        except (MalformedMessage, BadSignature):
            return
        for frame in frames:
            self._take(frame)
