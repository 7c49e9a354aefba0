"""Brings a request to the streamer of its model, and its outputs back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .._base.errors import StreamerClosed
from .._base.model_errors import detached
from .._pipeline.request import Piece
from .._streamers.streamer import Component
from ..extend import BaseStreamer

Refused = Callable[[BaseStreamer, Piece, StreamerClosed], None]
"""called with a request that a streamer has not accepted because it is closed"""


def forward(streamer: BaseStreamer, piece: Piece, refused: Refused) -> None:
    """Send a request to a streamer, and answer it when the streamer has. Any thread; never blocks.

    Args:
        streamer: of the model.
        piece: the request, as a whole.
        refused: answers it, or sends it elsewhere, if the streamer is closed. Must not block.
    """
    piece.request.end_wait()  # type: ignore[attr-defined]
    if piece.request.ended:
        return
    priority, tenant = piece.request.priority, piece.request.tenant
    piece.enter(0)
    try:
        call = Component(streamer).forward(piece.items, priority, tenant, piece.context)
        piece.entered(call)
        call.add_done_callback(functools.partial(_answer, streamer, piece, refused))
    except StreamerClosed as error:
        piece.enter(-1)
        refused(streamer, piece, error)
    except BaseException as error:
        piece.fail(detached(error))


def _answer(streamer: BaseStreamer, piece: Piece, refused: Refused, call: Any) -> None:
    """Answer the request: a done callback."""
    if call.cancelled():
        return  # by the request, which has ended
    try:
        error = call.exception()
        if error is None:
            piece.arrived(call.result())
        elif isinstance(error, StreamerClosed):
            piece.enter(-1)
            refused(streamer, piece, error)
        else:
            piece.fail(error)
    except BaseException as error:
        piece.fail(detached(error))
