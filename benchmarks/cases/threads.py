"""Closed loop: client threads that ask again as soon as they have their answer."""

from __future__ import annotations

import threading
import time
from typing import Any

from compare import adapters

from cases import common


def measure(predict: adapters.Predict, items: list[Any], seconds: float) -> dict[str, float]:
    """Run a client thread for each item, which asks about that, and return the metrics."""
    loop = common.ClosedLoop(len(items))
    stop = False

    def client(number: int) -> None:
        batch, clock, done = [items[number]], time.perf_counter, loop.calls[number].append
        while not stop:
            start = clock()
            predict(batch)
            done(clock() - start)

    threads = [
        threading.Thread(target=client, args=(number,), daemon=True) for number in range(len(items))
    ]
    for thread in threads:
        thread.start()
    time.sleep(common.warm_up(seconds))
    loop.mark()
    time.sleep(seconds)
    loop.mark()
    stop = True
    for thread in threads:
        thread.join(5)
    return loop.metrics()


def main() -> None:
    options = common.arguments(__doc__, clients=1)
    predict = adapters.predict(
        options.peer, common.MODELS[options.model], options.workers, options.over
    )
    common.answer(measure(predict, list(range(options.clients)), options.seconds))
    common.leave()


if __name__ == "__main__":
    main()
