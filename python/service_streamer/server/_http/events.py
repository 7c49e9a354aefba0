"""Streams as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

from .. import _log
from .._errors import failure
from .json_values import dump
from .messages import Response

if TYPE_CHECKING:
    from ..._streams.stream import AsyncStream

CONTENT_TYPE = "text/event-stream"


async def events(pieces: AsyncStream, answer: Callable[[Any], Any] | None = None) -> Response:
    """Return a response with an event for each piece, and then an event "end" or "error".

    It waits for the first piece, so that an error before it has its own status.

    Args:
        pieces: the stream.
        answer: returns what is sent of a piece, as Triton does: nothing is sent at the end, and an
            error is an event without a name. None: the piece is sent.

    Raises:
        Exception: the stream has failed before its first piece.
    """
    try:
        piece = await anext(pieces)
        first = [_event(dump(piece if answer is None else answer(piece)))]
    except StopAsyncIteration:
        first = []
    except BaseException:
        await pieces.aclose()
        raise
    body = _body(first, pieces, answer)
    return Response(200, body, CONTENT_TYPE, (("cache-control", "no-store"),))


async def _body(
    first: list[bytes], pieces: AsyncStream, answer: Callable[[Any], Any] | None
) -> AsyncGenerator[bytes, None]:
    try:
        for each in first:
            yield each
        async for piece in pieces:
            yield _event(dump(piece if answer is None else answer(piece)))
        if answer is None:
            yield _event(b"{}", b"end")
    except Exception as error:
        told = failure(error)
        if told.status == 500:
            _log.failed("a stream", error)
        if answer is None:
            yield _event(dump({"error": told.message, "status": told.status}), b"error")
        else:
            yield _event(dump({"error": told.message}))
    finally:
        await pieces.aclose()


def _event(data: bytes, kind: bytes = b"") -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind, data) if kind else b"data: %b\n\n" % data
