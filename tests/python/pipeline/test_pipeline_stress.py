"""Every request ends, whatever many threads do at a time, and however small the queues are."""

import asyncio
import os
import random
import threading
import time

import pytest
from process_models import echo
from waits import LONG, eventually

from service_streamer import (
    CancelledError,
    Future,
    QueueFull,
    RequestTimeout,
    Stage,
    StreamerClosed,
)

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("SERVICE_STREAMER_STRESS_SECONDS", "4"))


class ModelError(Exception):
    pass


def add_one(batch):
    if "slow" in batch:
        threading.Event().wait(0.002)
    if "raise" in batch:
        raise ModelError
    return [item if isinstance(item, str) else item + 1 for item in batch]


def check(outcome, items):
    """Check what a request returned or raised."""
    if isinstance(outcome, ModelError):
        assert "raise" in items
    elif isinstance(outcome, BaseException):
        assert isinstance(outcome, CancelledError | RequestTimeout | QueueFull | StreamerClosed)
    else:
        assert "raise" not in items
        assert outcome == [item if isinstance(item, str) else item + 3 for item in items]


def outcome_of(call, *args, **kwargs):
    try:
        return call(*args, **kwargs)
    except Exception as error:
        return error


async def ask_and_cancel(pipeline, items, cancel):
    task = asyncio.ensure_future(pipeline.apredict(items, timeout=LONG))
    if cancel:
        await asyncio.sleep(random.random() / 200)
        task.cancel()
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    if isinstance(outcome, asyncio.CancelledError):
        return
    check(outcome, items)


def client(pipeline, seed, until, counts):
    dice = random.Random(seed)
    while time.monotonic() < until:
        items = [dice.choice([1, 2, 3, "slow", 5, 6, 7]) for _ in range(dice.choice([0, 1, 2, 40]))]
        if dice.random() < 0.05:
            items.append("raise")
        timeout = dice.choice([LONG, LONG, 0.003])
        kind = dice.choice(["predict", "submit", "cancel", "forget", "task"])
        options = {"timeout": timeout, "priority": dice.choice([-1, 0, 1])}
        if kind == "predict":
            check(outcome_of(pipeline.predict, items, **options), items)
        elif kind == "task":
            asyncio.run(ask_and_cancel(pipeline, items, dice.random() < 0.5))
        else:
            futures = [outcome_of(pipeline.submit, items, **options) for _ in range(5)]
            if kind == "cancel":
                for future in futures[::2]:
                    isinstance(future, Future) and future.cancel()
            for future in futures if kind != "forget" else ():
                if isinstance(future, Future):
                    check(outcome_of(future.result, LONG), items)
                else:
                    check(future, items)  # the queue had no room in time
        counts[seed] += 1


@pytest.mark.parametrize("max_queue", [1, None])
@pytest.mark.parametrize("max_in_flight", [1, None])
def test_every_request_ends(pipelines, threads, max_queue, max_in_flight):
    options = {} if max_queue is None else {"max_queue": max_queue}
    pipeline = pipelines(
        Stage(add_one, workers=3, **options),
        Stage(add_one, batch_size=16, **options),
        Stage(echo, processes=True, mp_start_method="fork", batch_size=4, **options),
        Stage(add_one, workers=2, batch_size=2, **options),
        max_in_flight=max_in_flight,
        **options,
    )
    until = time.monotonic() + SECONDS / 4
    counts = [0] * 12
    for seed in range(len(counts)):
        threads.run(client, pipeline, seed, until, counts)
    assert threads.join() == [None] * len(counts)
    assert min(counts) > 0
    eventually(lambda: pipeline.stats().running_batches == 0)
    assert pipeline.predict([1]) == [4]
    pipeline.close(timeout=LONG)
    stats = pipeline._backend.engine.stats()
    ended = ("completed", "failed", "cancelled", "expired", "dropped")
    assert sum(stats[name] for name in ended) == stats["submitted"]
