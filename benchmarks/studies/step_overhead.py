"""What a streamer adds to a step of a StepModel: the time of a step of a model that does nothing.

python -m studies.step_overhead
"""

from __future__ import annotations

import statistics
import time

from service_streamer import StepModel, ThreadedStreamer

STEPS = 3000
LIVE = (1, 8, 32, 64, 256)


class NoOp(StepModel):
    """Gives a number per item and step, and takes no time."""

    def __init__(self) -> None:
        super().__init__()
        self._left = STEPS

    def admit(self, items):
        self._left = STEPS
        return items

    def step(self, states):
        self._left -= 1
        return [(1, self._left <= 0)] * len(states)


def seconds_per_step(live: int) -> float:
    with ThreadedStreamer(NoOp(), batch_size=live) as streamer:
        items = list(range(live))
        streamer.predict(items)
        begun = time.perf_counter()
        outputs = streamer.predict(items)
        taken = time.perf_counter() - begun
    assert all(len(each) == STEPS for each in outputs)
    return taken / STEPS


def main() -> None:
    print(f"{'live items':>10} {'µs per step':>12}")
    for live in LIVE:
        best = statistics.median(seconds_per_step(live) for _ in range(5))
        print(f"{live:>10} {best * 1e6:>12.1f}")


if __name__ == "__main__":
    main()
