"""Sentences of log-normal lengths, which a batch pads to the longest: with `bucket=` or without.

`ours` is the service of examples/sentence_embeddings; `ours-plain` has no buckets. torch has one
thread. A client asks about one sentence after the other. Then one request has many sentences.
"""

from __future__ import annotations

import math
import random
import sys
import threading
import time
from pathlib import Path

from cases import common
from cases.native_models import torch  # first: it finds torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "sentence_embeddings"))

from service import BUCKETS, EmbeddingService

MEDIAN, SPREAD = 20, 0.8  # tokens; standard deviation of the logarithm
SHORTEST, LONGEST = 2, 256
LARGE = 256  # sentences of the one request


def sentence(dice: random.Random) -> torch.Tensor:
    length = round(dice.lognormvariate(math.log(MEDIAN), SPREAD))
    return torch.full((min(max(length, SHORTEST), LONGEST),), 1000)


def main() -> None:
    options = common.arguments(__doc__, clients=32, seed=1)
    torch.set_num_threads(1)
    service = EmbeddingService(bucket=None if options.peer == "ours-plain" else BUCKETS)
    predict = service.streamer.predict
    loop = common.ClosedLoop(options.clients)
    stop = False

    def client(number: int) -> None:
        dice = random.Random(1000 * options.seed + number)
        while not stop:
            batch = [sentence(dice)]
            start = time.perf_counter()
            predict(batch)
            loop.calls[number].append(time.perf_counter() - start)

    threads = [threading.Thread(target=client, args=(each,)) for each in range(options.clients)]
    for thread in threads:
        thread.start()
    time.sleep(common.warm_up(options.seconds))
    loop.mark()
    used = time.process_time()
    time.sleep(options.seconds)
    used = time.process_time() - used
    loop.mark()
    stop = True
    for thread in threads:
        thread.join()
    metrics = loop.metrics()
    metrics["cpu_ms"] = 1e3 * used / (metrics["per_s"] * options.seconds)
    metrics["batch"] = service.streamer.stats().mean_batch_size
    dice = random.Random(options.seed)
    sentences = [sentence(dice) for _ in range(LARGE)]
    start = time.perf_counter()
    predict(sentences, timeout=600)
    metrics["large_per_s"] = LARGE / (time.perf_counter() - start)
    if options.peer != "ours-plain":
        metrics["padding"] = service.streamer.stats().padding
    common.answer(metrics)
    common.leave()


if __name__ == "__main__":
    main()
