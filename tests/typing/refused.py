"""What type checkers refuse. Read by mypy and basedpyright (`make lint`), never run.

Each `type: ignore` claims that both refuse the line: an unused one is an error.
"""

from __future__ import annotations

from typing import Any

from results import Array, Countdown, Lengths, count, embed, lengths, spell

from service_streamer import (
    Future,
    ManagedModel,
    Pipeline,
    RayStreamer,
    RedisStreamer,
    RedisWorker,
    Streamer,
    ThreadedStreamer,
    batched,
    run_redis_workers_forever,
)
from service_streamer.torch import BatchedModel, NativeModel


def values_of_options(streamer: ThreadedStreamer) -> None:
    ThreadedStreamer(lengths, 64, policy="adpative")  # type: ignore[call-overload]
    ThreadedStreamer(lengths, 64, overflow="drop")  # type: ignore[call-overload]
    ThreadedStreamer(lengths, 64, output="item")  # type: ignore[call-overload]
    ThreadedStreamer(lengths, 64, coalesce="twice")  # type: ignore[call-overload]
    ThreadedStreamer(lengths, 64, cache=2000)  # type: ignore[call-overload]
    ThreadedStreamer(lengths, 64, collate="concat")  # type: ignore[call-overload]
    ThreadedStreamer(lengths, 64, max_latncy=1)  # type: ignore[call-overload]
    ThreadedStreamer(lengths, options=64)  # type: ignore[call-overload]
    Streamer(Lengths, options={"batch_size": 64})  # type: ignore[call-overload]
    Streamer.connect("@lengths", options="tuned.toml")  # type: ignore[call-arg]
    batched(64, options="tuned.toml")  # type: ignore[call-arg]
    Streamer(lengths, 64, policy="adpative")  # type: ignore[call-overload]
    Streamer(Lengths, 64, mp_start_method="threads")  # type: ignore[call-overload]
    Streamer(Lengths, 64, retries="1")  # type: ignore[call-overload]
    Streamer(Lengths, 64, numa="any")  # type: ignore[arg-type]
    Streamer(Lengths, 64, affinity=[0, 1])  # type: ignore[arg-type, list-item]
    ThreadedStreamer(lengths, 64, affinity="auto")  # type: ignore[call-overload]
    Streamer.connect("@lengths", overflow="drop")  # type: ignore[arg-type]
    RayStreamer(lengths, 64, policy="adpative")  # type: ignore[call-overload]
    RayStreamer(lengths, 64, replicas="2")  # type: ignore[call-overload]
    RayStreamer(Lengths, 64, num_gpus="1")  # type: ignore[call-overload]
    RayStreamer(Lengths, 64, worker_num=2)  # type: ignore[call-overload]
    RayStreamer.connect("lengths", overflow="drop")  # type: ignore[arg-type]
    RedisStreamer(output="item")  # type: ignore[arg-type]
    RedisWorker(Lengths, 64, policy="adpative")  # type: ignore[arg-type]
    run_redis_workers_forever(Lengths, 64, mp_start_method="threads")  # type: ignore[arg-type]
    Pipeline(lengths, overflow="drop")  # type: ignore[arg-type]
    streamer.configure(policy="adpative")  # type: ignore[arg-type]
    batched(64, policy="adpative")  # type: ignore[arg-type]
    batched(64, output="batch")  # type: ignore[call-arg]
    NativeModel("a.pt2", collate="concat")  # type: ignore[arg-type]
    NativeModel("a.pt2", collate="pack")  # type: ignore[arg-type]
    NativeModel("a.pt2", output="cpu")  # type: ignore[arg-type]
    BatchedModel(embed, pad_side="top")  # type: ignore[arg-type]


async def results(streamer: ThreadedStreamer[str, list[int], int]) -> None:
    a: list[str] = streamer.predict(["a"])  # type: ignore[assignment]
    b: list[str] = streamer.submit(["a"]).result()  # type: ignore[assignment]
    c: list[str] = await streamer.apredict(["a"])  # type: ignore[assignment]
    d: list[str] = await streamer.submit(["a"])  # type: ignore[assignment]
    e: Future[list[str]] = streamer.submit(["a"])  # type: ignore[assignment]
    f: str = streamer.predict_one("a")  # type: ignore[assignment]
    g: str = await streamer.apredict_one("a")  # type: ignore[assignment]
    h: str = next(streamer.map(["a"]))  # type: ignore[assignment]
    i: str = next(streamer.stream("a"))  # type: ignore[assignment]
    j: str = count("a")  # type: ignore[assignment]
    streamer.submit(["a"]).add_done_callback(of_text)  # type: ignore[arg-type]
    print(a, b, c, d, e, f, g, h, i, j)


def of_text(future: Future[list[str]]) -> None:
    print(future.result())


async def items(streamer: ThreadedStreamer[str, list[int], int]) -> None:
    streamer.predict([1])  # type: ignore[list-item]
    streamer.predict(1)  # type: ignore[arg-type]
    streamer.predict({"text": "a"})  # type: ignore[dict-item]
    streamer.predict({"a"})  # type: ignore[arg-type]
    streamer.submit([1])  # type: ignore[list-item]
    await streamer.apredict([1])  # type: ignore[list-item]
    streamer.predict_one(["a"])  # type: ignore[arg-type]
    streamer.map([1])  # type: ignore[list-item]
    streamer.stream(1)  # type: ignore[arg-type]
    streamer.astream(1)  # type: ignore[arg-type]
    count(["a"])  # type: ignore[arg-type]
    Streamer(Countdown, 8).predict(["a"])  # type: ignore[list-item]
    RayStreamer(Lengths, 8).predict([1])  # type: ignore[list-item]


def one_item_of_an_array() -> None:
    streamer = ThreadedStreamer(embed, 64, output="batch")
    streamer.predict_one("a")  # type: ignore[misc]


async def asynchronous(batch: list[str]) -> list[int]:
    return lengths(batch)


class Unlike(ManagedModel[str, int]):
    def predict(self, batch: list[str]) -> list[str]:  # type: ignore[override]
        return batch


class Service:
    @batched(64)
    def predict(self, batch: list[str]) -> list[int]:
        return lengths(batch)

    @batched(64)  # type: ignore[arg-type]
    def unlike(self, batch: list[str], more: int) -> list[int]:
        return lengths(batch)


async def methods(service: Service) -> None:
    a: str = service.predict("a")  # type: ignore[assignment]
    service.predict(1)  # type: ignore[arg-type]
    print(a)


def models(array: Array) -> None:
    ThreadedStreamer(len, 64)  # type: ignore[arg-type]
    Streamer(asynchronous, 64)  # type: ignore[arg-type]
    ThreadedStreamer(array, 64)  # type: ignore[call-overload]
    ThreadedStreamer(Lengths, 64)  # type: ignore[arg-type]
    Streamer(Lengths(), 64)  # type: ignore[call-overload]
    RayStreamer(spell, 64)  # type: ignore[arg-type]


def other_streamers(streamer: ThreadedStreamer[str, list[int]]) -> None:
    a: ThreadedStreamer[bytes, Any] = streamer  # type: ignore[assignment]
    b: ThreadedStreamer[str, list[str]] = streamer  # type: ignore[assignment]
    c: RedisStreamer[str, list[int]] = streamer  # type: ignore[assignment]
    d: RayStreamer[str, list[int]] = streamer  # type: ignore[assignment]
    e: list[str] = RayStreamer(lengths, 64).predict(["a"])  # type: ignore[assignment]
    print(a, b, c, d, e)
