"""Begins a stream: sends its request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .hub import CLIENT, this_hub
from .inbox import Inbox, check

if TYPE_CHECKING:
    from .._backend import Backend

Submit = Callable[[list[Any], bytes], Any]


def begin(submit: Submit, item: Any, buffer: int, backend: Backend) -> Inbox:
    """Send the request of a stream, and return the inbox for its pieces.

    Args:
        submit: called with the items of the request, and its reader for `_request_context`.
        item: the one item.
        buffer: most pieces that are kept for the reader.
        backend: of the streamer.
    """
    inbox = Inbox(check(buffer), backend.engine)
    hub = this_hub()
    client: bytes | None = getattr(backend, "client_id", None)  # of a broker
    if backend.remote and client is None and not hub.socket:
        from .listening import listen  # imported for the first model in another process

        listen(hub)
    address = hub.add(inbox)
    if client is not None:
        address = address._replace(hub=CLIENT + client.hex(), socket="")
    try:
        inbox.follow(submit([item], address.pack()))
    except BaseException:
        inbox.cancel()
        raise
    return inbox
