"""A thread that appends messages of streams of outputs to streams of the broker."""

from __future__ import annotations

import collections
import time
from collections.abc import Iterator

from redis.exceptions import ResponseError

from .._base.errors import BrokerError
from .._waiting.backoff import Backoff
from .._waiting.threads import Condition, NativeThread
from .connection.broker import Broker
from .protocol import FIELD, Signer
from .stream_frames import Frame, pack

LARGEST = 2**23  # bytes of the payloads in one message, unless one is larger
STOP_PATIENCE = 2.0  # s to send the rest


class StreamPoster:
    """Sends frames. `add` never waits for the broker; a destructor may call it.

    Args:
        broker: of the queue.
        signer: of the messages.
        kind: of the messages.
        sender: this relay or client: 16 bytes.
        expiry_ms: of a stream of the broker since its last message.
    """

    def __init__(
        self, broker: Broker, signer: Signer, kind: int, sender: bytes, expiry_ms: int
    ) -> None:
        self._connection = broker.connection()
        self._signer = signer
        self._kind = kind
        self._sender = sender
        self._expiry_ms = expiry_ms
        self._frames: collections.deque[tuple[bytes, Frame]] = collections.deque()
        self._changed = Condition()
        self._stopped_at = float("inf")
        self.thread = NativeThread(self._run, "service-streamer-poster")

    def add(self, key: bytes, frame: Frame) -> None:
        """Append a frame to the stream at a key of the broker, soon."""
        self._frames.append((key, frame))
        self._changed.notify()

    def stop(self) -> None:
        """End the thread after it has sent the rest. Does not wait."""
        self._stopped_at = time.monotonic()
        self._changed.notify()

    def interrupt(self) -> None:
        """End the thread now."""
        self.stop()
        self._connection.interrupt()

    def _run(self) -> None:
        backoff = Backoff()
        try:
            while self._wait():
                while frames := self._take():
                    commands = list(self._commands(frames))
                    while not self._send(commands) and not self._is_late():
                        self._changed.wait_for(self._is_late, backoff.next())
                    backoff.reset()
        finally:
            self._connection.close()

    def _wait(self) -> bool:
        self._changed.wait_for(lambda: bool(self._frames) or self._stopping(), None)
        return bool(self._frames) and not self._is_late()

    def _stopping(self) -> bool:
        return self._stopped_at < float("inf")

    def _is_late(self) -> bool:
        return time.monotonic() > self._stopped_at + STOP_PATIENCE

    def _take(self) -> dict[bytes, list[Frame]]:
        taken: dict[bytes, list[Frame]] = {}
        size = 0
        while self._frames and size < LARGEST:
            key, frame = self._frames.popleft()
            taken.setdefault(key, []).append(frame)
            size += len(frame.payload)
        return taken

    def _commands(self, frames: dict[bytes, list[Frame]]) -> Iterator[tuple[object, ...]]:
        for key, of_key in frames.items():
            message = self._signer.seal(key, pack(self._kind, self._sender, of_key))
            yield ("XADD", key, "*", FIELD, message)
            yield ("PEXPIRE", key, self._expiry_ms)

    def _send(self, commands: list[tuple[object, ...]]) -> bool:
        """Send; return False if it is worth trying again. A frame may then arrive twice."""
        try:
            self._connection.pipeline(commands)
        except BrokerError as error:
            return not error.transient
        except ResponseError:
            return True
        return True
