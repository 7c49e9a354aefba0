"""The measurements behind docs/tuning: `python -m tuning`, two minutes on 2 cores.

Writes results/tuning.json, and from it the report of the pages. `make docs` draws the pictures.
"""

from __future__ import annotations

import argparse
import json
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import machine
from cases import common, threads
from report import as_json

from service_streamer import Streamer, ThreadedStreamer

HERE = Path(__file__).resolve().parents[1]
RESULTS = HERE / "results" / "tuning.json"
PAGES = HERE.parent / "docs" / "tuning"
SECONDS = 2.0
SHOWN = 0.06  # seconds of a timeline
Predict = Callable[[list[Any]], list[Any]]


def timeline(policy: str, callers: int = 6) -> dict[str, Any]:
    """What happened to requests and batches in `SHOWN` seconds, in milliseconds."""
    batches: list[tuple[float, float]] = []
    requests: list[tuple[int, float, float, float]] = []  # caller, sent, taken, answered
    taken: dict[int, float] = {}
    stop = False

    def predict(batch: list[int]) -> list[int]:
        start = time.perf_counter()
        taken.update(dict.fromkeys(batch, start))
        common.model(batch)
        batches.append((start, time.perf_counter()))
        return batch

    def caller(number: int) -> None:
        while not stop:
            sent = time.perf_counter()
            streamer.predict([number])
            requests.append((number, sent, taken[number], time.perf_counter()))

    options: dict[str, Any] = {"max_latency": 0.01, "policy": policy}
    with ThreadedStreamer(predict, 8, **options) as streamer:
        all_callers = [threading.Thread(target=caller, args=(n,)) for n in range(callers)]
        for each in all_callers:
            each.start()
        time.sleep(1)
        stop = True
        for each in all_callers:
            each.join()
    begin = next(start for start, _ in batches if start > batches[-1][1] - 0.5) - 0.002
    shown = [each for each in requests if each[3] > begin and each[1] < begin + SHOWN]
    return {
        "callers": callers,
        "batches": [
            [in_ms(start - begin), in_ms(end - begin)]
            for start, end in batches
            if end > begin and start < begin + SHOWN
        ],
        "requests": [[n, *(in_ms(moment - begin) for moment in moments)] for n, *moments in shown],
    }


def in_ms(seconds: float) -> float:
    return round(1e3 * seconds, 3)


def under_load(streamer: Streamer | ThreadedStreamer, callers: int) -> dict[str, float]:
    """Throughput, latency and the mean batch size of callers in a closed loop."""
    with streamer:
        streamer.wait_ready(30)
        figures = threads.measure(streamer.predict, list(range(callers)), SECONDS)
        figures["mean_batch"] = streamer.stats().mean_batch_size
    return {name: round(value, 3) for name, value in figures.items()}


def report() -> str:
    """What explain() says when 16 callers have batches of 64."""
    with ThreadedStreamer(predict, 64) as streamer:
        threads.measure(streamer.predict, list(range(16)), SECONDS)
        return str(streamer.explain())


def predict(batch: list[Any]) -> list[Any]:
    return common.model(batch)


def waiting(batch: list[Any]) -> list[Any]:
    """Wait for another machine: 10 ms, whatever the number of items."""
    time.sleep(0.01)
    return batch


def computing(batch: list[Any]) -> list[Any]:
    """Compute in Python: half a millisecond or so for each item."""
    for _ in batch:
        sum(number * number for number in range(8000))
    return batch


def workers() -> Iterator[dict[str, Any]]:
    """The throughput of several workers, by what the model does and where it runs."""
    for model in (waiting, computing):
        for kind in (ThreadedStreamer, Streamer):
            for number in (1, 2, 4):
                streamer = kind(model, 8, worker_num=number)
                figures = under_load(streamer, 32)
                yield {"model": model.__name__, "kind": kind.__name__, "workers": number} | figures


def measure() -> dict[str, Any]:
    sizes = (1, 2, 4, 8, 16, 32, 64, 128)
    model = common.model
    return {
        "command": "python -m tuning",
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
        "machine": machine.describe().as_dict(),
        "commit": machine.commit(),
        "timelines": {policy: timeline(policy) for policy in ("window", "greedy", "adaptive")},
        "batch_sizes": {n: under_load(ThreadedStreamer(model, n), 64) for n in sizes},
        "callers": {n: under_load(ThreadedStreamer(model, 64), n) for n in sizes},
        "workers": list(workers()),
        "report": report(),
    }


def wrapped(text: str) -> str:
    """The report, whose sentences are as narrow as its tables."""
    lines = [line if "  " in line else textwrap.fill(line, 88) for line in text.splitlines()]
    return "\n".join(lines)


def publish() -> None:
    """Put the report into its page."""
    page = PAGES / "explain.md"
    before, rest = page.read_text().split("```text\n", 1)
    after = rest.split("\n```\n", 1)[1]
    shown = wrapped(json.loads(RESULTS.read_text())["report"])
    page.write_text(f"{before}```text\n{shown}\n```\n{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--publish", action="store_true", help="without a measurement")
    parser.add_argument("--report", action="store_true", help="measure the report only: 2 seconds")
    options = parser.parse_args()
    if options.report:
        RESULTS.write_text(as_json(json.loads(RESULTS.read_text()) | {"report": report()}))
    elif not options.publish:
        RESULTS.write_text(as_json(measure()))
    publish()


if __name__ == "__main__":
    main()
