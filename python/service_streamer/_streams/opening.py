"""Begins a stream: sends its request, and opens the writer in the process of the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .hub import CLIENT, Address, this_hub
from .inbox import Inbox, check
from .local import LocalWriter
from .writer import NoWriter, Writer

Submit = Callable[[list[Any], bytes], Any]


def begin(
    submit: Submit,
    item: Any,
    buffer: int,
    owner: Any,
    remote: bool,
    client: bytes | None = None,
) -> Inbox:
    """Send the request of a stream, and return the inbox for its pieces.

    Args:
        submit: called with the items of the request, and its reader for `request_context`.
        item: the one item.
        buffer: most pieces that are kept for the reader.
        owner: the engine of the streamer.
        remote: the model is in another process.
        client: the address of the client if the pieces come through a broker.
    """
    inbox = Inbox(check(buffer), owner)
    hub = this_hub()
    if remote and client is None and not hub.socket:
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


def open_writer(reader: bytes) -> Writer:
    """Return a writer for a new run of a request.

    Args:
        reader: that of the request's context (`request_context.reader_of`).
    """
    try:
        address = Address.unpack(reader)
    except ValueError:  # of another version
        return NoWriter()
    hub = this_hub()
    if address.hub == hub.secret:
        inbox = hub.find(address.number)
        return NoWriter() if inbox is None else LocalWriter(inbox)
    from .remote import open_remote  # imported for the first reader in another process

    return open_remote(address)
