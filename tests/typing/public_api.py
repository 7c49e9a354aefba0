"""The public API as a typed application uses it. Read by mypy (`make lint`), never run.

Each `type: ignore` claims that mypy refuses the line: an unused one is an error under --strict.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from service_streamer import (
    Future,
    ManagedModel,
    OutputSizeMismatch,
    QueueFull,
    RequestTimeout,
    SerializationError,
    StreamerClosed,
    StreamerError,
    StreamerStats,
    ThreadedStreamer,
    TimeSummary,
    WorkerInitError,
    WorkerLost,
)
from service_streamer.managed_model import ManagedModel as OldManagedModel
from service_streamer.service_streamer import ThreadedStreamer as OldThreadedStreamer


def lengths(batch: list[str]) -> list[int]:
    return [len(text) for text in batch]


def as_in_the_original() -> None:
    streamer = ThreadedStreamer(lengths, 64, 0.1, 20)
    outputs: list[int] = streamer.predict(["a", "bc"])
    future: Future = streamer.submit(["a"])
    same: list[int] = future.result()
    within: list[int] = future.result(timeout=1)
    done: bool = future.done()
    streamer._wait_for_worker_ready()
    streamer.destroy_workers()
    print(outputs, same, within, done)


def every_option() -> ThreadedStreamer:
    return ThreadedStreamer(
        predict_function=lengths,
        batch_size=64,
        max_latency=0.1,
        worker_timeout=None,
        policy="adaptive",
        max_queue=1024,
        overflow="reject",
        output="batch",
        spin=True,
        isolate_errors=False,
    )


def any_callable_on_lists(
    sequence: Callable[[list[str]], Sequence[float]], mapping: Mapping[str, Any]
) -> None:
    ThreadedStreamer(sequence, batch_size=8)
    ThreadedStreamer(**mapping)


def life_cycle() -> None:
    with ThreadedStreamer(lengths, batch_size=8) as streamer:
        streamer.wait_ready(timeout=5)
        streamer.configure(policy="greedy", batch_size=16, max_latency=0)
    streamer.close()
    streamer.close(drain=False, timeout=1.5)


def deadline_and_priority(streamer: ThreadedStreamer) -> None:
    try:
        streamer.predict(("a", "b"), timeout=0.5, priority=1)
    except QueueFull as full:
        later: float = full.retry_after
        print(later)
    except OutputSizeMismatch as mismatch:
        expected: int = mismatch.expected
        received: int | None = mismatch.received
        print(expected, received)
    except (RequestTimeout, TimeoutError, StreamerClosed, SerializationError) as error:
        print(error)
    except (WorkerLost, WorkerInitError, StreamerError) as error:
        print(error)


def futures(streamer: ThreadedStreamer) -> None:
    pending: list[Future] = [streamer.submit([text], timeout=2) for text in "abc"]
    first, *others = pending
    first.add_done_callback(lambda done: print(done.exception(timeout=0)))
    for future in concurrent.futures.as_completed(others):
        print(future.result())
    cancelled: bool = first.cancel() or first.cancelled() or first.running()
    print(cancelled)


async def coroutines(streamer: ThreadedStreamer) -> None:
    outputs: list[int] = await streamer.apredict(["a"], timeout=1, priority=2)
    awaited: list[int] = await streamer.submit(["a"])
    wrapped: asyncio.Future[Any] = asyncio.wrap_future(streamer.submit(["a"]))
    print(outputs, awaited, await wrapped)


def offline(streamer: ThreadedStreamer, texts: Iterator[str]) -> None:
    for length in streamer.map(texts, chunk_size=32, progress=True):
        print(length)


def numbers(streamer: ThreadedStreamer) -> None:
    stats: StreamerStats = streamer.stats()
    queue_time: TimeSummary = stats.queue_time
    seconds: float = queue_time.p99
    sizes: Mapping[int, int] = stats.batch_sizes
    text: str = streamer.explain()
    print(seconds, sizes, text)


class Lengths(ManagedModel):
    def init_model(self, prefix: str, *, upper: bool = False) -> None:
        self.model = str.upper if upper else str.lower

    def predict(self, batch: list[str]) -> list[int]:
        return lengths([self.model(text) for text in batch])


def managed_model() -> None:
    model = Lengths(gpu_id=0)
    model.init_model("a", upper=True)
    outputs: list[int] = model.predict(["a"])
    Lengths.set_gpu_id("0,1")
    print(outputs, model.gpu_id)


def old_modules(model: OldManagedModel, streamer: OldThreadedStreamer) -> None:
    same_model: ManagedModel = model
    same_streamer: ThreadedStreamer = streamer
    print(same_model, same_streamer)


def refused(streamer: ThreadedStreamer) -> None:
    ThreadedStreamer(lengths)  # type: ignore[call-arg]
    ThreadedStreamer(lengths, "64")  # type: ignore[arg-type]
    ThreadedStreamer(lengths, 64, 0.1, 20, "greedy")  # type: ignore[call-arg]
    streamer.predict(["a"], 1.0)  # type: ignore[call-arg]
    streamer.predict(3)  # type: ignore[arg-type]
    streamer.submit(["a"], deadline=1)  # type: ignore[call-arg]
    ManagedModel(gpu_id=1.5)  # type: ignore[arg-type]
