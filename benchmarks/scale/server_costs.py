"""Measures what the commands of the protocol cost a Redis server, in seconds of its processor time.

The messages, commands and scripts are those of the package. Only the processor time of the server
counts, so other work on the machine changes little.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import hiredis

from service_streamer._redis.connection import scripts
from service_streamer._redis.gateway.lease_keeper import BEATS
from service_streamer._redis.protocol import CLAIM_AFTER, FIELD, GROUP, Keys

from .costs import Cost, ServerCosts
from .fitting import line

KEYS = Keys("scale")
QUEUE = KEYS.queue
ENTRIES = 20_000  # of a measurement
LEASES = 64  # entries of a worker at a heartbeat: half of the most


class Wire:
    """A connection that sends commands and receives replies separately."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._reader = hiredis.Reader()

    def send(self, *commands: Sequence[Any]) -> None:
        self._socket.sendall(b"".join(map(hiredis.pack_command, commands)))

    def receive(self, count: int) -> list[Any]:
        replies: list[Any] = []
        while len(replies) < count:
            reply = self._reader.gets()
            if reply is False:
                self._reader.feed(self._socket.recv(2**18))
            elif isinstance(reply, Exception):
                raise reply
            else:
                replies.append(reply)
        return replies

    def ask(self, *commands: Sequence[Any]) -> list[Any]:
        self.send(*commands)
        return self.receive(len(commands))

    def close(self) -> None:
        self._socket.close()


class Measurement:
    """The processor time of a server while something is done."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def seconds(self) -> float:
        (about,) = self._wire.ask(("INFO", "cpu"))
        lines = dict(line.split(":") for line in about.decode().split() if ":" in line)
        return float(lines["used_cpu_user"]) + float(lines["used_cpu_sys"])

    def of(self, work: Callable[[], int]) -> float:
        """Return the seconds per round of `work`, which says how many it has done."""
        before = self.seconds()
        rounds = work()
        return (self.seconds() - before) / rounds


def append(body: bytes) -> tuple[Any, ...]:
    return ("XADD", QUEUE, "*", FIELD, body)


def fetch(consumer: str, count: int, *block: Any) -> tuple[Any, ...]:
    group = ("GROUP", GROUP, consumer, "COUNT", count)
    return ("XREADGROUP", *group, *block, "STREAMS", QUEUE, ">")


def fresh(wire: Wire) -> None:
    wire.ask(("FLUSHALL",), ("XGROUP", "CREATE", QUEUE, GROUP, "0", "MKSTREAM"))


def entries(reply: Any) -> list[bytes]:
    return [entry for entry, _ in reply[0][1]] if reply else []


def life(wire: Wire, count: int, clients: int, size: int) -> Iterator[float]:
    """The costs of an append, a fetch and a finish of `count` requests of some clients."""
    meter = Measurement(wire)
    body = os.urandom(size)
    rounds = max(20, min(2000, ENTRIES // count, 200_000_000 // (count * (size + 1))))
    fresh(wire)
    ids: list[list[bytes]] = []

    def add() -> int:
        for _ in range(rounds):
            wire.ask(*[append(body)] * count, ("XLEN", QUEUE))
        return rounds

    def take() -> int:
        for _ in range(rounds):
            got, _ = wire.ask(fetch("a", count), ("XLEN", QUEUE))
            ids.append(entries(got))
        return rounds

    def finish() -> int:
        answer = os.urandom(size * count // clients)
        for done in ids:
            commands: list[Sequence[Any]] = [("MULTI",)]
            for client in range(clients):
                key = KEYS.replies(b"%016d" % client)
                commands += (("XADD", key, "*", FIELD, answer), ("PEXPIRE", key, 3_600_000))
            commands += (("XACK", QUEUE, GROUP, *done), ("XDEL", QUEUE, *done), ("EXEC",))
            wire.ask(*commands)
        return rounds

    yield from (meter.of(add), meter.of(take), meter.of(finish))


def reading(wire: Wire, other: Wire) -> float:
    """The cost of a reader that waits, gets a reply, and waits again; without the reply itself."""
    meter = Measurement(wire)
    key, rounds = KEYS.replies(b"%016d" % 0), 3000
    fresh(wire)

    def alone() -> int:
        for _ in range(rounds):
            wire.ask(("XADD", key, "*", FIELD, b"answer"))
        return rounds

    def read() -> int:
        last: bytes = b"$"
        for _ in range(rounds):
            other.send(("XREAD", "COUNT", 100, "BLOCK", 5000, "STREAMS", key, last))
            wire.ask(("PING",), ("PING",))
            wire.ask(("XADD", key, "*", FIELD, b"answer"))
            (last,) = entries(other.receive(1)[0])
        return rounds

    def pings() -> int:
        for _ in range(rounds):
            wire.ask(("PING",), ("PING",))
        return rounds

    return meter.of(read) - meter.of(alone) - meter.of(pings)


def waking(wire: Wire, port: int, workers: int) -> float:
    """The cost of a message that one of some waiting workers gets, which then waits again."""
    meter = Measurement(wire)
    fresh(wire)
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(contextlib.closing(Wire(port))) for _ in range(workers)]
        for number, each in enumerate(waiting):
            each.send(fetch(f"c{number}", 64, "BLOCK", 60_000))
        wire.ask(("PING",))

        def wake() -> int:
            for number, each in itertools.islice(itertools.cycle(enumerate(waiting)), 1000):
                wire.ask(append(b"m"))
                each.receive(1)
                each.send(fetch(f"c{number}", 64, "BLOCK", 60_000))
            return 1000

        return meter.of(wake)


def keeping(wire: Wire, workers: int) -> dict[str, float]:
    """The costs of what a worker does in each round, and in its turn. Each has `LEASES` entries."""
    meter = Measurement(wire)
    fresh(wire)
    claim_ms = int(CLAIM_AFTER * 1000)
    for number in range(workers):
        wire.ask(*[append(b"m")] * LEASES, fetch(f"c{number}", LEASES))
    (owned,) = wire.ask(("XPENDING", QUEUE, GROUP, "-", "+", LEASES, "c0"))
    leases = [entry for entry, *_ in owned]
    nothing = ("GROUP", GROUP, "c0", "COUNT", 1, "STREAMS", QUEUE, f"{2**64 - 1}-0")
    commands: dict[str, Sequence[Any]] = {
        "beat": ("EVAL", scripts.BEAT, 1, QUEUE, GROUP, "c0", *leases),
        "touch": ("XREADGROUP", *nothing),
        "claim": ("EVAL", scripts.CLAIM, 1, QUEUE, GROUP, "c0", claim_ms, LEASES),
        "clean": ("EVAL", scripts.CLEAN, 1, QUEUE, GROUP, 10 * claim_ms, claim_ms),
    }

    def repeat(command: Sequence[Any]) -> Callable[[], int]:
        def rounds() -> int:
            for _ in range(100):
                wire.ask(command)
            return 100

        return rounds

    return {name: meter.of(repeat(command)) for name, command in commands.items()}


def measure(port: int) -> tuple[ServerCosts, dict[str, Any]]:
    """Measure a server that has nothing else to do. Return the costs, and all points."""
    wire, other = Wire(port), Wire(port)
    counts, sizes, workers = (1, 4, 16, 64, 256), (100, 1000, 10_000, 100_000), (1, 10, 100, 1000)
    by_count = {count: list(life(wire, count, 1, 100)) for count in counts}
    by_clients = {clients: list(life(wire, 64, clients, 100))[2] for clients in (1, 4, 16, 64)}
    by_size = {size: list(life(wire, 64, 1, size)) for size in sizes}
    read = reading(wire, other)
    blocked = {number: waking(wire, port, number) for number in workers}
    kept = {number: keeping(wire, number) for number in workers}
    steps = range(3)
    calls = [line((count, each[step]) for count, each in by_count.items()) for step in steps]
    sized = [line((64 * size, each[step]) for size, each in by_size.items()).each for step in steps]
    client = line(by_clients.items()).each
    clean = line((number, each["clean"]) for number, each in kept.items())
    add, take, finish = (
        Cost(cost.call, max(0.0, cost.each - 100 * byte), byte)
        for cost, byte in zip(calls, sized, strict=True)
    )
    costs = ServerCosts(
        append=add,
        fetch=take,
        finish=Cost(finish.call - client, finish.each, 0.0),
        reply=Cost(client, 0.0, finish.byte),
        read=read,
        blocked=line(blocked.items()).each,
        rounds=BEATS / CLAIM_AFTER,
        touch=2 * kept[1]["touch"],  # of two streams
        beat=kept[1]["beat"] / LEASES,
        claim=line((LEASES * number, each["claim"]) for number, each in kept.items()),
        clean=Cost(2 * clean.call, 2 * clean.each),
    )
    points = {
        "by_count": by_count,
        "by_clients": by_clients,
        "by_size": by_size,
        "read": read,
        "blocked": blocked,
        "kept": kept,
    }
    return costs, points
