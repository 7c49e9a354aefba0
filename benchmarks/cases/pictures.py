"""Decoding, a network and the answer: as a pipeline, or one after the other in predict_function.

`ours` is the pipeline of examples/image_classification. `ours-alone-1` and `ours-alone-all` do all
three in the predict function of one process, where torch uses one thread or all cores. All get the
same JPEG files of 1600 x 1200.
"""

from __future__ import annotations

import io
import os
import random
import sys
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


def main() -> None:
    options = common.arguments(__doc__)
    streamer = served(options.peer)
    pictures = files()
    predict: Callable[[Any], Any] = streamer.predict
    predict(pictures)
    before, start = time.process_time(), time.perf_counter()
    metrics = measure(predict, pictures, options.seconds)
    used = (time.process_time() - before) / (time.perf_counter() - start)
    metrics["cores"] = used / len(os.sched_getaffinity(0))
    begin = time.perf_counter()
    predict(pictures)
    metrics["large_ms"] = 1e3 * (time.perf_counter() - begin)
    common.answer(metrics)
    common.leave()


if __name__ == "__main__":
    main()
