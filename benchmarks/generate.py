"""Continuous batching against batches of whole requests, with the generator of examples/generate.

python benchmarks/generate.py [--seconds 20] [--clients 32] [--step 0.005]

Each client asks for a text of 16 to 256 characters, and for the next one when it has it. The
logarithm of the length is uniform, so most texts are short. With batches of whole requests the
model runs until the longest text of the batch is done. --step adds seconds to each step, as if a
larger network ran on a GPU.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "generate"))

from verse import Generator, Order

from service_streamer import ThreadedStreamer

SHORTEST, LONGEST = 16, 256
PROMPTS = ("Twinkle, twinkle", "Jack and Jill", "The early bird", "Mary had")

Answer = Callable[[ThreadedStreamer, Order], AsyncIterator[str]]


class Slower(Generator):
    """A generator whose steps take longer."""

    extra = 0.0

    def step(self, states: list[Any]) -> list[tuple[str, bool]]:
        if self.extra > 0:
            time.sleep(self.extra)
        return super().step(states)


class WholeRequests:
    """The same model for batches of whole requests."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    def __call__(self, orders: list[Order]) -> list[str]:
        states = self._generator.admit(orders)
        texts: list[list[str]] = [[] for _ in orders]
        for _ in range(max(order.length for order in orders)):
            for text, (character, _) in zip(texts, self._generator.step(states), strict=True):
                text.append(character)
        self._generator.drop(states)
        return ["".join(text[: order.length]) for text, order in zip(texts, orders, strict=True)]


async def whole(streamer: ThreadedStreamer, order: Order) -> AsyncIterator[str]:
    (text,) = await streamer.apredict([order])
    yield "".join(text)


def pieces(streamer: ThreadedStreamer, order: Order) -> AsyncIterator[str]:
    return streamer.astream(order)


async def load(
    streamer: ThreadedStreamer, answer: Answer, clients: int, seconds: float
) -> tuple[float, list[float], list[float]]:
    """Return characters per second, and the latencies of texts and of their first characters."""
    latencies: list[float] = []
    firsts: list[float] = []
    characters = 0
    begun = time.perf_counter()
    measured = begun + seconds / 5  # the rest is to warm up
    end = measured + seconds

    async def client(number: int) -> None:
        nonlocal characters
        chance = random.Random(number)
        while (sent := time.perf_counter()) < end:
            length = round(SHORTEST * (LONGEST / SHORTEST) ** chance.random())
            first = None
            async for text in answer(streamer, Order(chance.choice(PROMPTS), length, seed=length)):
                now = time.perf_counter()
                first = now - sent if first is None else first
                if measured <= now < end:
                    characters += len(text)
            if sent >= measured:
                latencies.append(time.perf_counter() - sent)
                firsts.append(first or 0.0)

    await asyncio.gather(*(client(number) for number in range(clients)))
    return characters / seconds, latencies, firsts


def measure(name: str, model: Any, answer: Answer, clients: int, seconds: float) -> float:
    with ThreadedStreamer(model, clients, worker_timeout=None) as streamer:
        rate, latencies, firsts = asyncio.run(load(streamer, answer, clients, seconds))
    cells = [statistics.median(latencies), statistics.quantiles(latencies, n=20)[-1]]
    cells.append(statistics.median(firsts))
    print(f"{name:<28} {rate:>9,.0f}" + "".join(f"{cell * 1e3:>12,.0f}" for cell in cells))
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--step", type=float, default=0.0)
    arguments = parser.parse_args()
    clients, seconds = arguments.clients, arguments.seconds
    Slower.extra = arguments.step

    def generator() -> Slower:
        made = Slower()
        made.init_model(2 * clients)
        return made

    heads = ("p50, ms", "p95, ms", "first, ms")
    print(f"{'':<28} {'per s':>9}" + "".join(f"{head:>12}" for head in heads))
    before = measure("whole requests", WholeRequests(generator()), whole, clients, seconds)
    after = measure("steps, whole texts", generator(), whole, clients, seconds)
    streamed = measure("steps, streams", generator(), pieces, clients, seconds)
    factors = f"{after / before:.2f} times the characters per second; with streams"
    print(f"{factors} {streamed / before:.2f}")


if __name__ == "__main__":
    main()
