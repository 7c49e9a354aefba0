"""Closed loop: client threads that ask again as soon as they have their answer."""

from __future__ import annotations

import os
import threading
import time

from compare import adapters

from cases import common


def main() -> None:
    options = common.arguments(__doc__, clients=1)
    predict = adapters.predict(options.peer, common.MODELS[options.model])
    loop = common.ClosedLoop(options.clients)
    stop = False

    def client(number: int) -> None:
        item, clock, done = [number], time.perf_counter, loop.calls[number].append
        while not stop:
            start = clock()
            predict(item)
            done(clock() - start)

    threads = [
        threading.Thread(target=client, args=(number,), daemon=True)
        for number in range(options.clients)
    ]
    for thread in threads:
        thread.start()
    time.sleep(common.warm_up(options.seconds))
    loop.mark()
    time.sleep(options.seconds)
    loop.mark()
    stop = True
    for thread in threads:
        thread.join(5)
    common.answer(loop.metrics())
    os._exit(0)  # the peers' threads need not end by themselves


if __name__ == "__main__":
    main()
