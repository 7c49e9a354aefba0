"""Requests that leave by an BrokerEgress and come in by an BrokerIngress, carried by the test."""

import pickle
import struct
import threading

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


class Carrier:
    """The threads of a client and a worker machine, and what lies between them."""

    def __init__(self, client, server):
        self.egress = client.egress
        self.ingress = _core.BrokerIngress(server)
        self.numbers = {}  # of the ingress's requests, by ours
        self.threads = [threading.Thread(target=run) for run in (self._send, self._reply)]
        for thread in self.threads:
            thread.start()

    def _send(self):
        number = 0
        while (taken := self.egress.take(PLENTY, LONG)) is not None:
            chunks, cancelled = taken
            for id, begin, items, deadline, priority, body in chunks:
                number += 1
                self.numbers[number] = id, begin, items
                assert self.ingress.submit(number, body, deadline, priority) == items
            ids = set(cancelled)
            self.ingress.cancel([n for n, key in self.numbers.copy().items() if key[0] in ids])

    def _reply(self):
        while (ended := self.ingress.take(LONG)) is not None:
            answers = [(*self.numbers.pop(number), body) for number, body in ended]
            self.egress.answer([answer for answer in answers if answer[-1]])

    def close(self):
        self._stop(self.egress, self.threads[0])
        self._stop(self.ingress, self.threads[1])  # now nothing more comes in

    @staticmethod
    def _stop(end, thread):
        end.stop()
        thread.join(LONG)
        assert not thread.is_alive()


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
