"""Continuous batching against batches of whole requests, with the generator of examples/generate.

python -m studies.generate [--turns 5] [--seconds 8] [--clients 32] [--process] [--step 0.005]

Each client asks for a text of 16 to 256 characters, and for the next one when it has it. The
logarithm of the length is uniform, so most texts are short. With batches of whole requests the
model runs until the longest text of the batch is done. The ways are measured in turn, and the
table has the medians of the turns. --process runs the model in a worker process. --step adds
seconds to each step, as if a larger network ran on a GPU.
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

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "generate"))

from verse import Generator, Order

from service_streamer import ManagedModel, Streamer, ThreadedStreamer
from service_streamer._streamers.streamer import BaseStreamer

SHORTEST, LONGEST = 16, 256
PROMPTS = ("Twinkle, twinkle", "Jack and Jill", "The early bird", "Mary had")

Answer = Callable[[BaseStreamer, Order], AsyncIterator[str]]


class Steps(Generator):
    """The generator, with steps that may take longer."""

    def init_model(self, slots: int = 64, extra: float = 0.0) -> None:
        super().init_model(slots)
        self._extra = extra

    def step(self, states: list[Any]) -> list[tuple[str, bool]]:
        if self._extra > 0:
            time.sleep(self._extra)
        return super().step(states)


class WholeRequests(ManagedModel):
    """The same model for batches of whole requests."""

    def init_model(self, slots: int = 64, extra: float = 0.0) -> None:
        self._generator = Steps()
        self._generator.init_model(slots, extra)

    def predict(self, batch: list[Order]) -> list[str]:
        states = self._generator.admit(batch)
        texts: list[list[str]] = [[] for _ in batch]
        for _ in range(max(order.length for order in batch)):
            for text, (character, _) in zip(texts, self._generator.step(states), strict=True):
                text.append(character)
        self._generator.drop(states)
        return ["".join(text[: order.length]) for text, order in zip(texts, batch, strict=True)]


async def whole(streamer: BaseStreamer, order: Order) -> AsyncIterator[str]:
    (text,) = await streamer.apredict([order])
    yield "".join(text)


def pieces(streamer: BaseStreamer, order: Order) -> AsyncIterator[str]:
    return streamer.astream(order)


WAYS: dict[str, tuple[type[ManagedModel], Answer]] = {
    "whole requests": (WholeRequests, whole),
    "steps": (Steps, whole),
    "steps, as streams": (Steps, pieces),
}
COLUMNS = ("per s", "p50, ms", "p95, ms", "first, ms")


async def load(streamer: BaseStreamer, answer: Answer, clients: int, seconds: float) -> list[float]:
    """Return characters per second, and the times of texts and of their first characters."""
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
    p95 = statistics.quantiles(latencies, n=20)[-1]
    times = (statistics.median(latencies), p95, statistics.median(firsts))
    return [characters / seconds, *(each * 1e3 for each in times)]


def measure(way: str, arguments: argparse.Namespace) -> list[float]:
    kind, answer = WAYS[way]
    clients = arguments.clients
    init = (2 * clients, arguments.step)  # slots: see Generator.init_model
    streamer: BaseStreamer
    if arguments.process:
        streamer = Streamer(kind, clients, worker_timeout=None, model_init_args=init)
    else:
        model: Any = kind()
        model.init_model(*init)
        target = model if kind is Steps else model.predict
        streamer = ThreadedStreamer(target, clients, worker_timeout=None)
    with streamer:
        streamer.predict([Order("Jack", 9)])
        return asyncio.run(load(streamer, answer, clients, arguments.seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--process", action="store_true")
    parser.add_argument("--step", type=float, default=0.0)
    arguments = parser.parse_args()

    turns = [{way: measure(way, arguments) for way in WAYS} for _ in range(arguments.turns)]
    print(f"{'':<20}" + "".join(f"{column:>11}" for column in (*COLUMNS, "times", "from", "to")))
    for way in WAYS:
        columns = zip(*(turn[way] for turn in turns), strict=True)
        medians = [statistics.median(each) for each in columns]
        factors = sorted(turn[way][0] / turn["whole requests"][0] for turn in turns)
        shown = (statistics.median(factors), factors[0], factors[-1])
        cells = [f"{each:>11,.0f}" for each in medians] + [f"{each:>11.2f}" for each in shown]
        print(f"{way:<20}" + "".join(cells))


if __name__ == "__main__":
    main()
