"""Measures how long interactive requests take beside a queue of bulk work of a lower priority.

python -m studies.priorities [--redis]
"""

import argparse
import contextlib
import functools
import multiprocessing
import statistics
import threading
import time

from compare import broker

from service_streamer import RedisStreamer, RedisWorker, ThreadedStreamer

BATCH_SIZE = 32
BULK = 100_000  # queued items, each a request
CALLERS = 8
SECONDS = 4.0
ROUNDS = 5
PAUSE = 0.01  # s between two requests of a caller


def service_time(items):
    return 0.005 + 0.0002 * items


def model(batch):
    time.sleep(service_time(len(batch)))
    return batch


def call(streamer, times, end):
    while time.perf_counter() < end:
        start = time.perf_counter()
        streamer.predict([0])
        times.append(time.perf_counter() - start)
        time.sleep(PAUSE)


@contextlib.contextmanager
def threaded():
    """Yield a streamer for the bulk work, and one for the interactive requests: the same."""
    with ThreadedStreamer(model, BATCH_SIZE, max_queue=2 * BULK) as streamer:
        yield streamer, streamer


def work(address, prefix):
    RedisWorker(model, BATCH_SIZE, redis_broker=address, prefix=prefix).run_forever()


@contextlib.contextmanager
def over_redis(address):
    """Yield two clients of a worker, whose queue at the broker has room for the bulk work."""
    prefix = f"priorities-{time.monotonic_ns()}"
    worker = multiprocessing.get_context("spawn").Process(target=work, args=(address, prefix))
    worker.start()
    options = {"prefix": prefix, "max_queue": 2 * BULK}
    with RedisStreamer(address, **options) as bulk, RedisStreamer(address, **options) as other:
        other.wait_ready()
        yield bulk, other
    worker.terminate()
    worker.join()


def wait_until_queued(streamer, bulk):
    while bulk and streamer.stats().stream.length < 0.9 * bulk:
        time.sleep(0.1)


def latencies(bulk, place):
    """Return the sorted seconds of the interactive requests."""
    with place() as (loaded, streamer):
        for _ in range(bulk):
            loaded.submit([0], priority=-1)
        if isinstance(streamer, RedisStreamer):
            wait_until_queued(streamer, bulk)
        times = []
        end = time.perf_counter() + SECONDS
        callers = [
            threading.Thread(target=call, args=(streamer, times, end)) for _ in range(CALLERS)
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        left = streamer.stats()
        assert not bulk or (left.stream.length if left.stream else left.queued_items) > 0
        loaded.close(drain=False)
    return sorted(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--redis", action="store_true", help="through a broker, with one worker")
    if not parser.parse_args().redis:
        measure(threaded)
        return
    address = broker.start_server()
    try:
        measure(functools.partial(over_redis, address))
    finally:
        import redis

        redis.Redis.from_url(f"redis://{address}").shutdown(nosave=True)


def measure(place):
    p50s, p99s = {0: [], BULK: []}, {0: [], BULK: []}
    for _ in range(ROUNDS):
        for bulk in (0, BULK):
            times = latencies(bulk, place)
            p50s[bulk].append(1e3 * times[len(times) // 2])
            p99s[bulk].append(1e3 * times[int(0.99 * len(times))])
    print(f"| bulk items queued | p50, ms | p99, ms | p99 of {ROUNDS} rounds, ms |")
    print("|---|---|---|---|")
    for bulk in (0, BULK):
        p50, p99 = statistics.median(p50s[bulk]), statistics.median(p99s[bulk])
        rounds = ", ".join(f"{each:.1f}" for each in p99s[bulk])
        print(f"| {bulk:,} | {p50:.1f} | {p99:.1f} | {rounds} |")
    alone, beside = statistics.median(p99s[0]), statistics.median(p99s[BULK])
    batch = 1e3 * service_time(BATCH_SIZE)
    bound = 1.1 * alone + batch
    print(f"\n1.1 x p99 without bulk work + one batch of {batch:.1f} ms: {bound:.1f} ms")
    print("the p99 beside it is", "within that" if beside <= bound else "more")


if __name__ == "__main__":
    main()
