"""The types of results. Read by mypy and basedpyright (`make lint`), never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from typing import Any

from typing_extensions import assert_type

from service_streamer import (
    AsyncStream,
    Future,
    ManagedModel,
    RayStreamer,
    RedisStreamer,
    StepModel,
    Stream,
    Streamer,
    ThreadedStreamer,
    batched,
)
from service_streamer._threads.batched import BatchedFunction
from service_streamer.torch import BatchedModel, NativeModel


class Array:
    """What arrays and tensors have."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int | slice) -> Array:
        return self

    def __iter__(self) -> Iterator[Array]:
        yield self


def lengths(batch: list[str]) -> list[int]:
    return [len(text) for text in batch]


def embed(batch: Sequence[str]) -> Array:
    return Array()


def spell(batch: list[str]) -> Iterator[list[str | None]]:
    yield [text[0] for text in batch]


# ------------------------------------------------------------------ every method


async def of_a_function(texts: Iterator[str]) -> None:
    streamer = ThreadedStreamer(lengths, batch_size=64, policy="greedy")
    assert_type(streamer, ThreadedStreamer[str, list[int], int])
    assert_type(streamer.predict(["a"]), list[int])
    assert_type(streamer.submit(["a"]), Future[list[int]])
    assert_type(streamer.submit(["a"]).result(timeout=1), list[int])
    assert_type(await streamer.submit(["a"]), list[int])
    assert_type(await streamer.apredict(["a"]), list[int])
    assert_type(streamer.predict_one("a", timeout=1, priority=1, tenant="acme"), int)
    assert_type(await streamer.apredict_one("a"), int)
    assert_type(streamer.map(texts), Generator[int, None, None])
    assert_type(list(streamer.stream("a")), list[int])
    assert_type([piece async for piece in streamer.astream("a")], list[int])
    assert_type(streamer.astream("a"), AsyncStream[int])
    with streamer as same, streamer.stream("a") as stream:
        assert_type(stream, Stream[int])
        assert_type(same, ThreadedStreamer[str, list[int], int])
        assert_type(next(stream), int)


async def of_a_generator_function() -> None:
    streamer = ThreadedStreamer(spell, batch_size=64)
    assert_type(streamer.predict(["a"]), list[list[str]])
    assert_type(streamer.predict_one("a"), list[str])
    assert_type(next(streamer.stream("a")), str)
    assert_type([piece async for piece in streamer.astream("a")], list[str])


def of_arrays(rows: Array) -> None:
    items = ThreadedStreamer(embed, batch_size=64)
    assert_type(items.predict(["a"]), list[Array])
    assert_type(items.predict_one("a"), Array)
    whole = ThreadedStreamer(embed, batch_size=64, output="batch")
    assert_type(whole.predict(["a"]), Array)
    assert_type(whole.submit(("a", "b")).result(), Array)
    assert_type(next(whole.map(["a"])), Array)

    def same(batch: list[Array]) -> list[Array]:
        return batch

    assert_type(ThreadedStreamer(same, batch_size=64).predict(rows), list[Array])


# ------------------------------------------------------------------------ models


class Lengths(ManagedModel[str, int]):
    def init_model(self, prefix: str, *, upper: bool = False) -> None:
        self.model = prefix

    def predict(self, batch: list[str]) -> tuple[int, ...]:
        return tuple(lengths(batch))


class Embed(ManagedModel[str, Array]):
    def predict(self, batch: list[str]) -> Array:
        return embed(batch)


class Spell(ManagedModel[str, list[str]]):
    def predict(self, batch: list[str]) -> Iterator[list[str | None]]:
        return spell(batch)


class WithoutParameters(ManagedModel):
    def predict(self, batch: list[str]) -> list[int]:
        return lengths(batch)


class Countdown(StepModel[int, str]):
    def admit(self, items: list[int]) -> list[list[int]]:
        return [[item] for item in items]

    def step(self, states: list[list[int]]) -> list[tuple[str | None, bool]]:
        return [("", True) for _ in states]


def of_worker_processes() -> None:
    assert_type(Streamer(lengths, 64).predict(["a"]), list[int])
    assert_type(Streamer(spell, 64).predict(["a"]), list[list[str]])
    assert_type(next(Streamer(spell, 64).stream("a")), str)
    assert_type(Streamer(embed, 64, output="batch").predict(["a"]), Array)
    assert_type(Streamer(Lengths, 64, model_init_args=["a"]).predict(["a"]), list[int])
    assert_type(Streamer(Lengths, 64, 0.1, 4, (0, 1)).predict_one("a"), int)
    assert_type(Streamer(Embed, 64).predict(["a"]), list[Array])
    assert_type(Streamer(Embed, 64, output="batch").predict(["a"]), Array)
    assert_type(Streamer(Spell, 64).predict(["a"]), list[list[str]])
    assert_type(Streamer(WithoutParameters, 64).predict(["a"]), list[Any])


def of_replicas() -> None:
    streamer = RayStreamer(lengths, 64, replicas=(1, 8), num_gpus=0.5, resources={"disk": 1})
    assert_type(streamer, RayStreamer[str, list[int], Any])
    assert_type(streamer.predict(["a"]), list[int])
    assert_type(streamer.submit(["a"]).result(), list[int])
    assert_type(next(streamer.map(["a"])), int)
    assert_type(RayStreamer(embed, 64, output="batch").predict(["a"]), Array)
    assert_type(RayStreamer(Lengths, 64, 0.1, 20, model_init_args=["a"]).predict_one("a"), int)
    assert_type(RayStreamer(Embed, 64, replicas=2, retries=0).predict(["a"]), list[Array])
    assert_type(RayStreamer(Embed, 64, output="batch").predict(["a"]), Array)
    assert_type(RayStreamer(WithoutParameters, 64).predict(["a"]), list[Any])
    in_a_file: RayStreamer[str, list[int]] = RayStreamer(Lengths, options="tuned.toml")
    print(in_a_file)


def of_steps() -> None:
    for streamer in (ThreadedStreamer(Countdown(), 32), Streamer(Countdown, 32)):
        assert_type(streamer.predict([3]), list[list[str]])
        assert_type(streamer.predict_one(3), list[str])
        assert_type(next(streamer.stream(3)), str)


def of_callables(
    method: Callable[[Sequence[str]], list[bytes]], unknown: Callable[..., Any], anything: Any
) -> None:
    assert_type(ThreadedStreamer(method, 64).predict(["a"]), list[bytes])
    outputs: list[int] = ThreadedStreamer(unknown, 64).predict(["a"])
    outputs = ThreadedStreamer(anything, 64).predict(["a"])
    lengths_of_anything = ThreadedStreamer(lambda batch: [1 for _ in batch], 64)
    assert_type(lengths_of_anything.predict(["a"]), list[int])
    print(outputs)


def of_torch_models(native: NativeModel, module: Callable[..., Any]) -> None:
    tensor: Array = ThreadedStreamer(native, 64, output="batch").predict(["a"])
    streamer = ThreadedStreamer(BatchedModel(module, collate="pad", output="cpu"), 64)
    tensors: list[Array] = streamer.predict(["a"])
    tensors = ThreadedStreamer(module, 64, collate="pad", device="cuda:0").predict(["a"])
    print(tensor, tensors)


# ----------------------------------------------------------------------- clients


def clients() -> None:
    assert_type(Streamer[str, list[int]].connect("@lengths").predict(["a"]), list[int])
    assert_type(RayStreamer[str, list[int]].connect("lengths").predict(["a"]), list[int])
    assert_type(RedisStreamer[str, list[int]]("broker:6379").predict_one("a"), int)
    assert_type(RedisStreamer[str, list[list[str]], str]().stream("a").__next__(), str)
    untyped: list[int] = Streamer.connect("@lengths", output="items").predict(["a"])
    typed: RedisStreamer[str, list[int]] = RedisStreamer(prefix="lengths")
    assert_type(typed.predict(["a"]), list[int])
    print(untyped)


def without_parameters(streamer: ThreadedStreamer, future: Future) -> ThreadedStreamer:
    first: int = streamer.predict_one("a")
    second: str = streamer.predict(["a"])
    third: list[int] = future.result()
    print(first, second, third)
    return streamer


def only_the_result(streamer: ThreadedStreamer[Any, Sequence[int]]) -> Sequence[int]:
    return streamer.predict(["a"])


def any_streamer_is_one_without_parameters() -> None:
    streamer = ThreadedStreamer(lengths, 64)
    without_parameters(streamer, streamer.submit(["a"]))
    without_parameters(ThreadedStreamer(embed, 64, output="batch"), streamer.submit(["a"]))
    only_the_result(streamer)


class Renamed(ThreadedStreamer[str, list[int], int]):
    def __init__(self) -> None:
        super().__init__(lengths, 64)


def of_a_subclass() -> None:
    assert_type(Renamed().predict(["a"]), list[int])


# --------------------------------------------------------------------- decorator


@batched(batch_size=64, max_latency=0.05, policy="greedy", worker_num=2)
def count(batch: list[str]) -> list[int]:
    return lengths(batch)


@batched(64)
def letters(batch: list[str]) -> Iterator[list[str]]:
    yield batch


@batched(64, max_concurrent_batches=4)
async def embed_later(batch: list[str]) -> list[int]:
    return lengths(batch)


@batched(64)
async def letters_later(batch: list[str]) -> AsyncIterator[list[str]]:
    yield batch


class Service:
    @batched(64)
    def predict(self, batch: list[str]) -> list[int]:
        return lengths(batch)

    @batched(64)
    def letters(self, batch: list[str]) -> Iterator[list[str]]:
        yield batch

    @batched(64)
    async def later(self, batch: list[str]) -> list[int]:
        return lengths(batch)

    @batched(64)
    async def letters_later(self, batch: list[str]) -> AsyncIterator[list[str]]:
        yield batch

    @batched(64)
    @staticmethod
    def plain(batch: list[str]) -> list[int]:
        return lengths(batch)

    @batched(64)
    @classmethod
    def of_class(cls, batch: list[str]) -> list[int]:
        return lengths(batch)


async def methods(service: Service) -> None:
    assert_type(service.predict, BatchedFunction[str, list[int], int])
    assert_type(service.predict("a"), int)
    assert_type(service.predict.predict(["a"]), list[int])
    assert_type(service.letters("a"), list[str])
    assert_type(next(service.letters.stream("a")), str)
    assert_type(await service.later("a"), int)
    assert_type(service.later.predict_one("a"), int)
    assert_type(await service.letters_later("a"), list[str])
    assert_type(service.plain("a"), int)
    assert_type(Service.of_class("a"), int)
    assert_type(service.of_class("a"), int)
    assert_type(Service.predict(service, "a"), Any)


async def later(batch: list[str]) -> Array:
    return Array()


async def of_async_functions() -> None:
    assert_type(await embed_later("a"), int)
    assert_type(embed_later.predict(["a"]), list[int])
    assert_type(await letters_later("a"), list[str])
    assert_type([piece async for piece in letters_later.astream("a")], list[str])
    streamer = ThreadedStreamer(later, 64, max_concurrent_batches=4)
    assert_type(streamer.predict(["a"]), list[Array])
    assert_type(ThreadedStreamer(later, 64, output="batch").predict(["a"]), Array)


async def decorated() -> None:
    assert_type(count("a"), int)
    assert_type(count("a", timeout=1, priority=1, tenant="acme"), int)
    assert_type(await count.apredict_one("a"), int)
    assert_type(count.predict(["a"]), list[int])
    assert_type(letters("a"), list[str])
    assert_type(next(letters.stream("a")), str)
    count.close()
