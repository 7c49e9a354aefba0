"""Requests that leave by a BrokerEgress, and the bodies of what travels, made and read by hand."""

import pickle
import struct

from remote import LONG, Asks, make_engine

from service_streamer import _core

PLENTY = 10**6


class Client(Asks):
    """What a client of a broker has of the core."""

    def __init__(self, chunk_size=4, **options):
        self.engine = make_engine(policy="greedy", inline=True, **options)
        self.egress = _core.BrokerEgress(self.engine, chunk_size)

    def take(self, limit=PLENTY, timeout=LONG):
        """All chunks of what was submitted."""
        chunks, cancelled = self.egress.take(limit, timeout)
        assert not cancelled
        return chunks

    def take_one(self):
        (chunk,) = self.take()
        return chunk

    def cancelled(self):
        chunks, cancelled = self.egress.take(0, LONG)
        assert not chunks
        return cancelled

    def close(self):
        self.engine.close(False)
        self.egress.stop()
        self.engine.abort()


def request(*items):
    """The body of a request, made by hand."""
    packed = [pickle.dumps(item) for item in items]
    ends = [sum(map(len, packed[: i + 1])) for i in range(len(packed))]
    return struct.pack(f"<{1 + len(ends)}I", len(ends), *ends) + b"".join(packed)


def result_of(outputs, outcome=0):
    """An answered result of one piece, made by hand."""
    packed = pickle.dumps(outputs)
    head = struct.pack("<BIIIIBI", outcome, 0, 1, 0, len(outputs), 0, len(packed))
    return head + packed


def answer_to(chunk, outputs):
    id, begin, items, *_ = chunk
    assert len(outputs) == items
    return id, begin, items, result_of(outputs)


def items_of(chunk):
    """What a chunk holds, read by hand."""
    body = chunk[-1]
    (count,) = struct.unpack_from("<I", body)
    ends = struct.unpack_from(f"<{count}I", body, 4)
    start = 4 + 4 * count
    assert len(body) == start + ends[-1]
    return [
        pickle.loads(body[start + a : start + b]) for a, b in zip((0, *ends), ends, strict=False)
    ]
