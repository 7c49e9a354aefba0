"""Decoding, a network and the answer: as a pipeline, or one after the other in predict_function.

`ours` is the pipeline of examples/image_classification. `ours-alone-1` and `ours-alone-all` do all
three in the predict function of one process, where torch uses one thread or all cores. All get the
same JPEG files of 1600 x 1200 from 64 client threads of the same process.

`cores` is the processor time of the process as a part of what it could have used: its own, and that
for which the cores were idle. So other processes do not count. `cpu_ms` is its processor time per
file, and `clients_ms` the part of the client threads.
"""

from __future__ import annotations

import io
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cases import common
from cases.native_models import torch  # first: it finds torch
from cases.threads import measure
from service_streamer import ThreadedStreamer

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "image_classification"))

import shapes
from pipeline_service import PipelineService, answers
from service import ImageService

CLIENTS = 64


def files() -> list[bytes]:
    rng = random.Random(0)
    found = []
    for number in range(CLIENTS):
        file = io.BytesIO()
        name = sorted(shapes.SHAPES)[number % len(shapes.SHAPES)]
        shapes.draw(name, rng, 1600, 1200).save(file, "JPEG", quality=90)
        found.append(file.getvalue())
    return found


def served(peer: str) -> Any:
    if peer != "ours-alone-all":
        torch.set_num_threads(1)
    if peer == "ours":
        return PipelineService().streamer
    service = ImageService()

    def all_three(batch: list[bytes]) -> list[Any]:
        return answers(service._predict(service.read(batch)))

    return ThreadedStreamer(all_three, 64)


class Counted:
    """Predicts for client threads, and counts their calls and their processor time."""

    def __init__(self, predict: Callable[[Any], Any]) -> None:
        self._predict = predict
        self._calls: dict[int, int] = {}
        self._seconds: dict[int, float] = {}

    def __call__(self, batch: Any) -> Any:
        outputs = self._predict(batch)
        thread = threading.get_ident()
        self._calls[thread] = self._calls.get(thread, 0) + 1
        self._seconds[thread] = time.thread_time()
        return outputs

    @property
    def calls(self) -> int:
        return sum(self._calls.values())

    @property
    def seconds(self) -> float:
        return sum(self._seconds.values())


def idle_seconds() -> float:
    """The time for which the cores of this process have been idle."""
    cores = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    ticks = sum(int(line[4]) + int(line[5]) for line in lines if line[0] in cores)
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    options = common.arguments(__doc__)
    streamer = served(options.peer)
    pictures = files()
    streamer.predict(pictures)
    predict = Counted(streamer.predict)
    used, idle = time.process_time(), idle_seconds()
    metrics = measure(predict, pictures, options.seconds)
    used, idle = time.process_time() - used, idle_seconds() - idle
    metrics["cores"] = used / (used + idle)
    metrics["cpu_ms"] = 1e3 * used / predict.calls
    metrics["clients_ms"] = 1e3 * predict.seconds / predict.calls
    begin = time.perf_counter()
    streamer.predict(pictures)
    metrics["large_ms"] = 1e3 * (time.perf_counter() - begin)
    common.answer(metrics)
    common.leave()


if __name__ == "__main__":
    main()
