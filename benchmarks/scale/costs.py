"""What each step of a request costs, in seconds of a core. The figures are measured."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "results" / "scale.json"


@dataclasses.dataclass(frozen=True)
class Cost:
    """A linear cost: per call, per request in it, and per byte of payload."""

    call: float = 0.0
    each: float = 0.0
    byte: float = 0.0

    def of(self, requests: int, size: float = 0.0) -> float:
        """Return the cost of a call with requests of `size` bytes."""
        return self.call + requests * (self.each + size * self.byte)

    def times(self, factor: float) -> Cost:
        """Return the cost times a factor."""
        return Cost(factor * self.call, factor * self.each, factor * self.byte)


@dataclasses.dataclass(frozen=True)
class ServerCosts:
    """A server that holds the queue: Redis, or the owner actor of Ray."""

    append: Cost
    """requests arrive in one message of a client"""
    fetch: Cost
    """requests go to a worker in one message"""
    finish: Cost
    """a worker's message with the answers of a batch"""
    reply: Cost
    """answers for one client; `call`: for each client of the batch"""
    read: float = 0.0
    """a client asks for the next replies"""
    blocked: float = 0.0
    """for each worker that waits for requests, at each append"""
    one_each: bool = True
    """True if each waiting worker gets one request: Redis serves one after each command"""
    prefetch: bool = True
    """True if workers fetch requests before they can run them: two batches for each process"""
    rounds: float = 0.0
    """of a worker, per second"""
    touch: float = 0.0
    """of a worker, in each round"""
    beat: float = 0.0
    """of a request at a worker, in each round"""
    claim: Cost = Cost()
    """of a worker, in its turn; `each`: for each request at any worker"""
    clean: Cost = Cost()
    """the same; `each`: for each worker"""


@dataclasses.dataclass(frozen=True)
class Costs:
    """All costs of a back end.

    Attributes:
        server: of the queue.
        send, receive: of a client process, per message.
        take, answer: of a worker's gateway, per message.
        model: of a model process, besides the model: per batch.
        hop: seconds from one thread to another on the way, without a core.
    """

    server: ServerCosts
    send: Cost
    receive: Cost
    take: Cost
    answer: Cost
    model: Cost
    hop: float = 50e-6

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Costs:
        """Return the costs that `as_dict` has given."""
        about = {
            name: Cost(**each) if isinstance(each, Mapping) else each
            for name, each in values.items()
            if name != "server"
        }
        server = {
            name: Cost(**each) if isinstance(each, Mapping) else each
            for name, each in values["server"].items()
        }
        return cls(server=ServerCosts(**server), **about)

    def as_dict(self) -> dict[str, Any]:
        """Return the costs for a JSON file."""
        return dataclasses.asdict(self)


def recorded(back_end: str = "redis") -> Costs:
    """Return the costs of a back end that were measured last."""
    return Costs.of(json.loads(RESULTS.read_text())["costs"][back_end])
