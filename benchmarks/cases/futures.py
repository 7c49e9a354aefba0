"""A notebook thread: 20,000 futures of one item each, then one task of 20,000 items."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from compare import adapters

from cases import common

COUNT = 20_000


def by_futures(submit: Callable[[list[int]], Any]) -> dict[str, float]:
    begin = time.perf_counter()
    futures = [submit([number]) for number in range(COUNT)]
    submitted = time.perf_counter()
    results = [future.result(60) for future in futures]
    end = time.perf_counter()
    assert results[-1] == [COUNT - 1]
    return {"submit_per_s": COUNT / (submitted - begin), "total_per_s": COUNT / (end - begin)}


def one_task(predict: adapters.Predict) -> dict[str, float]:
    items = list(range(COUNT))
    begin = time.perf_counter()
    results = predict(items)
    end = time.perf_counter()
    assert results == items
    return {"task_items_per_s": COUNT / (end - begin)}


def main() -> None:
    options = common.arguments(__doc__)
    streamer = adapters.streamer(options.peer, common.noop, options.workers, options.over)
    rounds: list[dict[str, float]] = []
    by_futures(streamer.submit)
    until = time.perf_counter() + options.seconds
    while not rounds or time.perf_counter() < until:
        rounds.append({**by_futures(streamer.submit), **one_task(streamer.predict)})
    common.answer({key: statistics.median(one[key] for one in rounds) for key in rounds[0]})
    common.leave()


if __name__ == "__main__":
    main()
