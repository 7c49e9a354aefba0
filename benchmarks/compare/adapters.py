"""One face for every package under test.

A peer is named as in the tables: `ours`, `ours-greedy`, `ours-spin`, `ours-bare` (no batcher at
all), `original-0.1` (the number is max_latency in seconds) or `batched-0.001`. Imports are local:
each virtual environment holds one package only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

BATCH_SIZE = 64
Predict = Callable[[list[Any]], list[Any]]
AsyncPredict = Callable[[list[Any]], Awaitable[list[Any]]]


def split(peer: str) -> tuple[str, str]:
    """("original", "0.1") from "original-0.1"; ("ours", "") from "ours"."""
    family, _, variant = peer.partition("-")
    return family, variant


def streamer(peer: str, model: Predict, workers: int = 0) -> Any:
    """A streamer, ours or the original's, with predict, submit and destroy_workers.

    A ThreadedStreamer, or with `workers` a Streamer that has so many worker processes ready.
    """
    from service_streamer import Streamer, ThreadedStreamer

    family, variant = split(peer)
    options: dict[str, Any] = {}
    if family == "original":
        options["max_latency"] = float(variant)
    elif variant == "spin":
        options["spin"] = True
    elif variant:
        options["policy"] = variant
    if not workers:
        return ThreadedStreamer(model, BATCH_SIZE, **options)
    with_processes: Any = Streamer(model, BATCH_SIZE, worker_num=workers, **options)
    with_processes._wait_for_worker_ready()  # the original's name for it
    return with_processes


def predict(peer: str, model: Predict, workers: int = 0) -> Predict:
    """A blocking predict(batch) that batches the calls of many threads; `ours-bare`: the model."""
    family, variant = split(peer)
    if variant == "bare":
        return model
    if family != "batched":
        blocking: Predict = streamer(peer, model, workers).predict
        return blocking
    import batched

    processor: Predict = batched.dynamically(
        model, batch_size=BATCH_SIZE, timeout_ms=float(variant) * 1000
    )
    return processor


def apredict(peer: str, model: Predict, workers: int = 0) -> AsyncPredict:
    """An awaitable predict(batch) that batches the calls of many tasks."""
    family, variant = split(peer)
    if family != "batched":
        awaitable: AsyncPredict = streamer(peer, model, workers).apredict
        return awaitable
    from batched import aio

    processor: AsyncPredict = aio.dynamically(
        model, batch_size=BATCH_SIZE, timeout_ms=float(variant) * 1000
    )
    return processor
