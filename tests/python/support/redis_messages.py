"""Messages as the README of the protocol has them, which the core makes for ours."""

import struct


def pack_request(client, request, begin, items, deadline, sent, priority, body):
    """Make the message of some items of a request; times in ms on the broker's clock."""
    numbers = struct.pack("<QIIqqi", request, begin, items, deadline, sent, priority)
    return b"SS\x01\x01" + client + numbers + body


def pack_replies(answers):
    """Make the message that brings (request, begin, items, body) to one client."""
    parts = [b"SS\x01\x02", struct.pack("<I", len(answers))]
    for request, begin, items, body in answers:
        parts += struct.pack("<QIII", request, begin, items, len(body)), body
    return b"".join(parts)
