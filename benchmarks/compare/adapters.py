"""One face for every package under test.

A peer is named as in the tables: `ours`, `ours-greedy`, `ours-bare` (no batcher at
all), `ours-eager` (with a module of torch), `original-0.1` (the number is max_latency in seconds),
`batched-0.001` or `rayserve-0.001`. Imports are local: each virtual environment holds one package
only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from compare import broker, ray_serve

BATCH_SIZE = 64
Predict = Callable[[list[Any]], list[Any]]
AsyncPredict = Callable[[list[Any]], Awaitable[list[Any]]]


def split(peer: str) -> tuple[str, str]:
    """("original", "0.1") from "original-0.1"; ("ours", "") from "ours"."""
    family, _, variant = peer.partition("-")
    return family, variant


def settings(peer: str) -> dict[str, Any]:
    """What the peer's name says of its streamer, or its Redis workers."""
    family, variant = split(peer)
    if family == "original":
        return {"max_latency": float(variant)}
    return {"policy": variant} if variant == "greedy" else {}


def streamer(peer: str, model: Predict, workers: int = 0, over: str = "") -> Any:
    """A streamer, ours or the original's, with predict, submit and destroy_workers.

    A ThreadedStreamer, or with `workers` a Streamer that has so many worker processes ready, or
    over "redis" or "ray" one that has so many workers at a server or a cluster of its own.
    """
    from service_streamer import Streamer, ThreadedStreamer

    if over == "ray":
        return ray_streamer(model, workers)
    if over:
        address = broker.start_server()
        broker.start_workers(peer, address, model.__name__, workers)
        return redis_streamer(address)
    if not workers:
        return ThreadedStreamer(model, BATCH_SIZE, **settings(peer))
    with_processes: Any = Streamer(model, BATCH_SIZE, worker_num=workers, **settings(peer))
    with_processes._wait_for_worker_ready()  # the original's name for it
    return with_processes


def redis_streamer(address: str) -> Any:
    """A RedisStreamer that has its first answer."""
    from service_streamer import RedisStreamer

    streamer: Any = RedisStreamer(redis_broker=address)
    streamer.predict([0])
    return streamer


def ray_streamer(model: Predict, replicas: int) -> Any:
    """A RayStreamer whose replicas are ready."""
    from service_streamer import RayStreamer

    ray_serve.start_cluster()
    streamer = RayStreamer(model, BATCH_SIZE, replicas=replicas)
    streamer.wait_ready()
    return streamer


def predict(peer: str, model: Predict, workers: int = 0, over: str = "") -> Predict:
    """A blocking predict(batch) that batches the calls of many threads; `ours-bare`: the model."""
    family, variant = split(peer)
    if variant == "bare":
        return model
    if family == "rayserve":
        handle = ray_serve.handle(model, workers, variant)
        return lambda batch: [handle.remote(batch[0]).result()]
    if family != "batched":
        blocking: Predict = streamer(peer, model, workers, over).predict
        return blocking
    import batched

    processor: Predict = batched.dynamically(
        model, batch_size=BATCH_SIZE, timeout_ms=float(variant) * 1000
    )
    return processor


def apredict(peer: str, model: Predict, workers: int = 0, over: str = "") -> AsyncPredict:
    """An awaitable predict(batch) that batches the calls of many tasks."""
    family, variant = split(peer)
    if family == "rayserve":
        handle = ray_serve.handle(model, workers, variant)

        async def ask(batch: list[Any]) -> list[Any]:
            return [await handle.remote(batch[0])]

        return ask
    if family != "batched":
        awaitable: AsyncPredict = streamer(peer, model, workers, over).apredict
        return awaitable
    from batched import aio

    processor: AsyncPredict = aio.dynamically(
        model, batch_size=BATCH_SIZE, timeout_ms=float(variant) * 1000
    )
    return processor
