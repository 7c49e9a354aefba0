"""Closed loop of client processes.

They are forked and share one Streamer, as under gunicorn --preload, or each has a RedisStreamer.
"""

from __future__ import annotations

import json
import os
import threading
import time

from compare import adapters, broker

from cases import common

PROCESSES = 4
COUNTED = 0.9  # of the time, for the cost of a request


def run_client(streamer: adapters.Predict, clients: int, begin: float, end: float) -> int:
    """Count the calls of this process' threads that were answered between two times."""
    counts = [0] * clients

    def client(number: int) -> None:
        item = [number]
        while (now := time.monotonic()) < end:
            streamer(item)
            counts[number] += now >= begin

    threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


def main() -> None:
    options = common.arguments(__doc__, clients=32)
    model = common.MODELS[options.model]
    if options.over == "redis":
        address = broker.start_server()
        broker.start_workers(options.peer, address, options.model, options.workers)
        first = os.fork()
        if first == 0:  # this process must have no thread when the clients are forked
            adapters.redis_streamer(address)
            os._exit(0)
        os.waitpid(first, 0)
    else:
        streamer = adapters.streamer(options.peer, model, options.workers)
    begin = time.monotonic() + (2.0 if options.over else 0.5) + common.warm_up(options.seconds)
    end = begin + options.seconds
    pipes = []
    for _ in range(PROCESSES):
        reader, writer = os.pipe()
        if os.fork() == 0:
            if options.over == "redis":
                streamer = adapters.redis_streamer(address)
            count = run_client(streamer.predict, options.clients, begin, end)
            os.write(writer, json.dumps(count).encode())
            os._exit(0)
        os.close(writer)
        pipes.append(reader)
    time.sleep(max(0.0, begin - time.monotonic()))
    before = common.cost()
    # Before the client threads end: their switches are lost then.
    time.sleep(max(0.0, end - (1 - COUNTED) * options.seconds - time.monotonic()))
    after = common.cost()
    counts = []
    for reader in pipes:
        with os.fdopen(reader) as answer:
            counts.append(json.loads(answer.read()))
    common.answer(
        {
            "per_s": sum(counts) / options.seconds,
            "fairness": min(counts) / max(max(counts), 1),
            **after.since(before, round(COUNTED * sum(counts))),
        }
    )
    common.leave()


if __name__ == "__main__":
    main()
