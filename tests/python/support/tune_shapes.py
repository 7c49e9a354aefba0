"""Grids of settings as four kinds of model would give them: computed from costs, with noise."""

import dataclasses
import random

from service_streamer._commands.tune.search.space import Space

CORES = 2
HEADROOM = 0.9  # of its capacity: the rate that settings can keep
NOISE = 0.02  # standard deviation of a figure


def computing(fixed, per_item, gain):
    """The time of a batch that computes. A second thread gives `gain` more speed."""

    def seconds(items, workers, threads):
        alone = (fixed + per_item * items) / (1 if threads == 1 else 1 + gain)
        crowd = workers * threads / CORES
        return alone * (1.1 * crowd if crowd > 1 else 1)

    return seconds


SHAPES = {
    "sleep": (0.05, lambda items, workers, threads: 0.005 + 0.0002 * items),
    "encoder": (0.05, computing(0.001, 0.0006, 0.7)),
    "cnn": (0.05, computing(0.0008, 0.0004, 0.5)),
    "memory": (0.2, computing(0.02, 0.0005, 0.2)),
}
"""the target of the p99, and the seconds of a batch for items, workers and threads"""


def shaped(name):
    """A grid as results/tune.json has it."""
    slo, seconds = SHAPES[name]
    space = dataclasses.replace(
        Space.of_machine(CORES, slo, most_items=256, most_workers=4),
        policy=("adaptive", "greedy"),
        max_latency=[slo / 4],
        affinity=(None,),
    )
    noise = random.Random(name)
    rows = []
    for settings in space.grid():
        layout = (settings.worker_num, settings.threads_per_worker)
        times = {n: seconds(n, *layout) for n in range(1, settings.batch_size + 1)}
        capacity = {n: settings.worker_num * n / time for n, time in times.items()}
        # A request waits for the running batch, and then for its own.
        kept = [capacity[n] for n, time in times.items() if 2.2 * time <= slo]
        rate = HEADROOM * max(kept, default=0) * (0.97 if settings.policy == "greedy" else 1)
        peak = max(capacity.values())
        factor = 1 + noise.gauss(0, NOISE)
        rows.append([dataclasses.astuple(settings), factor * peak, factor * rate, 2 * times[1]])
    return {"slo": slo, "space": dataclasses.asdict(space), "measured": rows}
