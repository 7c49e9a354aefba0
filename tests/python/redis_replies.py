"""Replies as workers of the protocol make them, which the core does for ours."""

import struct


def pack_replies(answers):
    """Make the message that brings (request, begin, items, body) to one client."""
    parts = [b"SS\x01\x02", struct.pack("<I", len(answers))]
    for request, begin, items, body in answers:
        parts += struct.pack("<QIII", request, begin, items, len(body)), body
    return b"".join(parts)
