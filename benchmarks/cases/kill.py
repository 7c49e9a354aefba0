"""A worker process is killed under load, again and again: how long the longest answer takes."""

from __future__ import annotations

import os
import signal
import threading
import time

from compare import adapters

from cases import common

PAUSE = 0.5  # seconds between two kills: a new worker is ready by then


def main() -> None:
    options = common.arguments(__doc__, clients=32)
    streamer = adapters.streamer(options.peer, common.model, options.workers)
    longest = [0.0] * options.clients
    stop = False

    def client(number: int) -> None:
        while not stop:
            start = time.perf_counter()
            streamer.predict([number])
            longest[number] = max(longest[number], time.perf_counter() - start)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(options.clients)]
    for thread in threads:
        thread.start()
    time.sleep(common.warm_up(options.seconds))
    longest[:] = [0.0] * options.clients
    kills = 0
    until = time.monotonic() + options.seconds
    while time.monotonic() < until:
        os.kill(streamer.stats().worker_processes[kills % options.workers].pid, signal.SIGKILL)
        kills += 1
        time.sleep(PAUSE)
        streamer.wait_ready()
    stop = True
    for thread in threads:
        thread.join()
    beyond = max(longest) - common.service_time(options.clients)
    common.answer({"beyond_ms": 1e3 * beyond, "kills": kills})
    common.leave()


if __name__ == "__main__":
    main()
