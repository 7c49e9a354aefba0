"""Measures what cutting large requests of a pipeline gives, and what a stage costs.

python -m studies.pipeline_pieces
"""

import time

from service_streamer import Pipeline, Stage, ThreadedStreamer

ROUNDS = 5


def decode(batch):
    time.sleep(0.002 * len(batch))
    return batch


def model(batch):
    time.sleep(0.005 + 0.0002 * len(batch))
    return batch


def noop(batch):
    return batch


def cut_into(size):
    """Return the class of pipelines that cut requests into pieces of this size."""

    class Cut(Pipeline):
        def _make_backend(self, options):
            self._piece_size = size
            return super()._make_backend(options)

    return Cut


def timed(call, *arguments, rounds=ROUNDS):
    call(*arguments)
    start = time.perf_counter()
    for _ in range(rounds):
        call(*arguments)
    return (time.perf_counter() - start) / rounds


def consume(outputs):
    return sum(1 for _ in outputs)


def pieces():
    print(
        "decode 2 ms, 4 threads; model 5 ms + 0.2 ms per item, batch_size 32; encode like decode\n"
    )
    print("| items in a piece | predict of 64, ms | predict of 16, ms | map of 2,000, items/s |")
    print("|---|---|---|---|")
    for size in (1, 4, 8, 16, 32, 1024):
        stages = Stage(decode, workers=4), Stage(model, 32), Stage(decode, workers=4)
        with cut_into(size)(*stages) as pipeline:
            large, small = (1e3 * timed(pipeline.predict, [0] * items) for items in (64, 16))
            rate = 2000 / timed(lambda each: consume(each.map(range(2000))), pipeline, rounds=1)
        print(f"| {size} | {large:.1f} | {small:.1f} | {rate:,.0f} |")


def costs():
    print("\nno-op models, batch_size 64: what a stage costs\n")
    print("| | predict of 1, µs | 20,000 futures, /s | map, items/s |")
    print("|---|---|---|---|")
    rows = {"ThreadedStreamer": ThreadedStreamer(noop, 64)}
    rows |= {f"{n} stages": Pipeline(*[Stage(noop, 64) for _ in range(n)]) for n in (1, 3)}
    for name, streamer in rows.items():
        with streamer:
            one = 1e6 * timed(streamer.predict, [0], rounds=2000)
            start = time.perf_counter()
            for future in [streamer.submit([0]) for _ in range(20_000)]:
                future.result()
            futures = 20_000 / (time.perf_counter() - start)
            mapped = 100_000 / timed(lambda each: consume(each.map(range(100_000))), streamer)
        print(f"| {name} | {one:.0f} | {futures:,.0f} | {mapped:,.0f} |")


if __name__ == "__main__":
    pieces()
    costs()
