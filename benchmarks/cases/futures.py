"""A notebook thread: 20,000 futures of one item each, then one task of 20,000 items."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from compare import adapters

from cases import common

COUNT = 20_000
Metrics = dict[str, float]


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


def repeat(measure: Callable[[], Metrics], seconds: float) -> list[Metrics]:
    until = time.perf_counter() + seconds
    rounds = [measure()]
    while time.perf_counter() < until:
        rounds.append(measure())
    return rounds


def medians(rounds: list[Metrics]) -> Metrics:
    return {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}


def main() -> None:
    options = common.arguments(__doc__)
    streamer = adapters.streamer(options.peer, common.noop, options.workers, options.over)
    by_futures(streamer.submit)
    before = common.cost()
    rounds = repeat(lambda: by_futures(streamer.submit), options.seconds / 2)
    cost = common.cost().since(before, COUNT * len(rounds))
    tasks = repeat(lambda: one_task(streamer.predict), options.seconds / 2)
    common.answer({**medians(rounds), **medians(tasks), **cost})
    common.leave()


if __name__ == "__main__":
    main()
