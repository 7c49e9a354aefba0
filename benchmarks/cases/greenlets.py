"""Closed loop of gevent greenlets in a monkey-patched process.

A ticker greenlet sees how long the hub stands still.
"""

from gevent import monkey

monkey.patch_all()

import os  # noqa: E402
import time  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402
from compare import adapters  # noqa: E402

from cases import common  # noqa: E402

TICK = 0.001
sleep = monkey.get_original("time", "sleep")


def model(batch: list[Any]) -> list[Any]:
    """A model blocks its thread for real; the patched sleep would only switch greenlets."""
    common.serve(len(batch), sleep)
    return batch


MODELS = {"noop": common.noop, "model": model}


def main() -> None:
    options = common.arguments(__doc__, clients=128)
    predict = adapters.predict(options.peer, MODELS[options.model])
    loop = common.ClosedLoop(options.clients)
    stalls: list[float] = []

    def client(number: int) -> None:
        item, clock, done = [number], time.perf_counter, loop.calls[number].append
        while True:
            start = clock()
            predict(item)
            done(clock() - start)

    def ticker() -> None:
        while True:
            start = time.perf_counter()
            gevent.sleep(TICK)
            stalls.append(time.perf_counter() - start - TICK)

    greenlets = [gevent.spawn(client, number) for number in range(options.clients)]
    gevent.spawn(ticker)
    gevent.sleep(common.warm_up(options.seconds))
    loop.mark()
    stalls.clear()
    gevent.sleep(options.seconds)
    loop.mark()
    if any(greenlet.dead for greenlet in greenlets):
        raise RuntimeError("a client greenlet ended early")
    stalls.sort()
    common.answer(
        {
            **loop.metrics(),
            "stall_max_ms": 1e3 * stalls[-1],
            "stall_p99_ms": 1e3 * common.percentile(stalls, 0.99),
        }
    )
    os._exit(0)


if __name__ == "__main__":
    main()
