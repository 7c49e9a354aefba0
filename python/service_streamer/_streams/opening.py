"""Begins a stream: sends its request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .hub import this_hub
from .inbox import Inbox, check

Submit = Callable[[list[Any], bytes], Any]


def begin(submit: Submit, item: Any, buffer: int, owner: Any, remote: bool) -> Inbox:
    """Send the request of a stream, and return the inbox for its pieces.

    Args:
        submit: called with the items of the request, and its reader for `_request_context`.
        item: the one item.
        buffer: most pieces that are kept for the reader.
        owner: the engine of the streamer.
        remote: the model is in another process.
    """
    inbox = Inbox(check(buffer), owner)
    hub = this_hub()
    if remote and not hub.socket:
        from .listening import listen  # imported for the first model in another process

        listen(hub)
    address = hub.add(inbox)
    try:
        inbox.follow(submit([item], address.pack()))
    except BaseException:
        inbox.cancel()
        raise
    return inbox
