"""A hub of a folder with thousands of models: its start, its wake-ups, and how soon it sees more.

The goals are beside the figures. It takes less than a minute.

python -m studies.many_models [--models 3000]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from service_streamer.hub import ModelHub

IDLE = 5.0  # s
NOTICED = 9

MODULE = """
from service_streamer import ManagedModel

def load(path):
    return lambda batch: batch

class Managed(ManagedModel):
    def init_model(self, path):
        pass

    def predict(self, batch):
        return batch
"""


def make(root: Path, models: int) -> None:
    """Make a folder of models. Every second one runs in worker processes."""
    for number in range(models):
        model = root / f"model-{number}"
        (model / "1").mkdir(parents=True)
        (model / "1" / "weights").touch()
        kind = ("load", "Managed")[number % 2]
        (model / "model.toml").write_text(
            f'model = "many_models_module:{kind}"\n[options]\nbatch_size = 8\n'
        )


def switches() -> int:
    """Return how often the other threads of this process have slept so far."""
    count = 0
    for task in Path("/proc/self/task").iterdir():
        if task.name != str(threading.get_native_id()):
            lines = (task / "status").read_text().splitlines()
            count += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_"))
    return count


def noticed(root: Path, hub: ModelHub, number: int) -> float:
    """Return the seconds until the hub knows of a new version."""
    new = root.parent / "new"
    new.mkdir()
    os.rename(new, root / "model-0" / str(number))
    begun = time.perf_counter()
    while number not in hub._models["model-0"].folders:
        time.sleep(0.001)
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=3000)
    models = parser.parse_args().models
    with tempfile.TemporaryDirectory() as place:
        sys.path.insert(0, place)
        Path(place, "many_models_module.py").write_text(MODULE)
        root = Path(place, "models")
        make(root, models)
        begun = time.perf_counter()
        with ModelHub.watch(root) as hub:
            start = time.perf_counter() - begun
            time.sleep(2)
            before, busy = switches(), time.process_time()
            time.sleep(IDLE)
            wakes, busy = switches() - before, time.process_time() - busy
            times = [noticed(root, hub, number) for number in range(2, 2 + NOTICED)]
        print(f"{'figure of ' + str(models) + ' models':<42} {'value':>8} {'goal':>6}")
        print(f"{'start, s':<42} {start:>8.2f} {5:>6}")
        print(f"{f'wake-ups of its threads in {IDLE:g} idle s':<42} {wakes:>8} {0:>6}")
        print(f"{f'processor time in {IDLE:g} idle s, s':<42} {busy:>8.3f}")
        print(f"{'a new version is noticed, median s':<42} {statistics.median(times):>8.2f} {2:>6}")
        print(f"{'a new version is noticed, longest s':<42} {max(times):>8.2f} {2:>6}")


if __name__ == "__main__":
    main()
