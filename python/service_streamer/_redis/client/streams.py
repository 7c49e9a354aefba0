"""The streams of outputs that a client reads."""

from __future__ import annotations

import functools

from ... import _core
from ..._streams.hub import this_hub
from ..._streams.inbox import Inbox
from ..._streams.listening import Receipts, decode, unpack_end
from ..._streams.moving import Kind
from ..._waiting.threads import Condition
from ..connection.broker import Broker
from ..protocol import NOTICE_EXPIRY_MS, Keys, Signer
from ..stream_frames import PIECES, RECEIPTS, Frame, is_kind, unpack
from ..stream_posting import StreamPoster


class StreamClient:
    """Puts pieces from the broker into inboxes, and sends receipts. Made once per client.

    Args:
        engine: of the client.
        broker: of the queue.
        keys: of the queue.
        signer: of the messages.
        client: the ID of the client: 16 bytes.
    """

    def __init__(
        self, engine: _core.Engine, broker: Broker, keys: Keys, signer: Signer, client: bytes
    ) -> None:
        self._engine = engine
        self._keys = keys
        self.poster = StreamPoster(broker, signer, RECEIPTS, client, NOTICE_EXPIRY_MS)
        self._taken = Condition()

    def all_here(self) -> bool:
        """Return True if no piece will come before the next request."""
        return all(inbox.complete for inbox in this_hub().of(self._engine))

    def wait_for_pieces(self, timeout: float) -> None:
        """Wait until `all_here`, at most `timeout` seconds."""
        self._taken.wait_for(self.all_here, timeout)

    def take(self, message: bytes) -> bool:
        """Take a message of the reply stream; return False if it is none of a stream.

        Called by the reader thread.

        Raises:
            MalformedMessage: it is damaged.
        """
        if not is_kind(message, PIECES):
            return False
        relay, frames = unpack(message)
        for frame in frames:
            inbox = this_hub().find(frame.number)
            if inbox is not None and inbox.owner is not self._engine:
                inbox = None
            if frame.kind == Kind.OPEN:
                self._open(relay, frame, inbox)
            elif inbox is not None and inbox.run == frame.run:
                _put(frame, inbox)
        self._taken.notify()
        return True

    def _open(self, relay: bytes, frame: Frame, inbox: Inbox | None) -> None:
        self.poster.thread.start()
        if inbox is not None and inbox.run == frame.run:
            return  # it has arrived twice
        back = _Back(self.poster, self._keys.receipts(relay), frame.run)
        if inbox is None or not inbox.open(
            frame.run, Receipts(back, frame.number, inbox), relay, decode
        ):
            back.post(Kind.CLOSED, frame.number)


def _put(frame: Frame, inbox: Inbox) -> None:
    # After a failure of a connection, messages may arrive twice, or be lost with the broker's data.
    if frame.position > inbox.arrived:
        inbox.lose()
    elif frame.kind == Kind.END:
        inbox.end(unpack_end(frame.payload))
    elif frame.position == inbox.arrived:
        inbox.put(frame.payload)


class _Back:
    """The way back to a writer, through the broker."""

    def __init__(self, poster: StreamPoster, key: bytes, run: bytes) -> None:
        self._add = functools.partial(poster.add, key)
        self._run = run

    def post(self, kind: Kind, number: int, payload: bytes = b"") -> None:
        """Send a receipt, soon."""
        self._add(Frame(number, kind, self._run, 0, payload))

    def flush_soon(self) -> None:
        """Do nothing: `post` is enough."""
