"""What models cost that share worker processes, and how requests fare when these are killed.

python -m studies.hub_sharing [sharing | idle_models | kills]…
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from service_streamer import ManagedModel, Streamer, WorkerLost
from service_streamer.hub import ModelHub, ModelSpec
from service_streamer.hub._memory import of_workers, pss

from .hub import in_turn, run

IDLE_MODELS = 50
IDLE_MEGABYTES = 2  # of each
KILLED_MODELS = 30
KILL_SECONDS = 60
KILL_CLIENTS = 16
SERVICE_TIME = 0.002


def sharing():
    """Print the time of a request to a process of its own and to a shared one."""
    spec = ModelSpec(lengths, batch_size=64, processes=True)
    with ModelHub({"model": spec}) as own, ModelHub({"model": spec}, workers=1) as shared:
        for what, item in (("text", "some text"), ("array", np.zeros(384, np.float32))):
            alone, together = in_turn([own["model"], shared["model"]], [item], 500)
            print(f"{what}: {alone:.1f} us in its own process, {together:.1f} us in a shared one")


def lengths(batch):
    """Return the lengths of the items."""
    return [len(item) for item in batch]


class Weights(ManagedModel):
    """Has some models with weights."""

    def init_model(self, models):
        self.model = [os.urandom(IDLE_MEGABYTES << 20) for _ in range(models)]

    def predict(self, batch):
        return batch


def idle_models():
    """Print the memory of many models in two workers, and of one worker with all weights."""
    with Streamer(Weights, 8, model_init_args=[IDLE_MODELS]) as streamer:
        streamer.predict([1])
        alone = of_workers(streamer)
    spec = ModelSpec(Weights, batch_size=8, model_init_args=[1])
    with ModelHub({f"model-{n}": spec for n in range(IDLE_MODELS)}, workers=2) as hub:
        for number in range(IDLE_MODELS):
            hub.predict(f"model-{number}", [1])
        workers = children()
        shared = sum(map(pss, workers))
    print(
        f"{IDLE_MODELS} idle models of {IDLE_MEGABYTES} MiB in {len(workers)} workers: "
        f"{shared / 2**20:.0f} MiB, {shared / alone:.2f} times one worker with all weights"
    )


class Journal(ManagedModel):
    """Writes down which items it begins and ends with. An item "die" ends its process."""

    def init_model(self, path):
        self.model = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def predict(self, batch):
        self._write("begin", batch)
        if any(item.endswith("die") for item in batch):
            os._exit(1)
        time.sleep(SERVICE_TIME)
        self._write("end", batch)
        return batch

    def _write(self, what, batch):
        os.write(self.model, "".join(f"{what} {item}\n" for item in batch).encode())


def kills():
    """Print how requests fare while workers are killed, and one model kills its own."""
    with tempfile.TemporaryDirectory() as root:
        path = os.path.join(root, "journal")
        spec = ModelSpec(Journal, batch_size=8, worker_timeout=None, model_init_args=[path])
        answered, lost, failed = Counter(), [], []
        killed = 0
        end = time.monotonic() + KILL_SECONDS
        with ModelHub({f"model-{n}": spec for n in range(KILLED_MODELS)}, workers=2) as hub:

            def client(seed):
                chosen = random.Random(seed)
                for count in itertools.count():
                    if time.monotonic() > end:
                        break
                    number = chosen.randrange(KILLED_MODELS)
                    deadly = number == 0 and chosen.random() < 0.02
                    item = f"{number}/{seed}/{count}/{'die' if deadly else ''}"
                    try:
                        (output,) = hub.predict(f"model-{number}", [item])
                        answered[output] += output == item
                    except WorkerLost:
                        lost.append(item)
                    except Exception as error:
                        failed.append((item, error))

            def killer(seed):
                nonlocal killed
                chosen = random.Random(seed)
                while time.monotonic() < end:
                    time.sleep(chosen.uniform(0.5, 3.0))
                    if workers := ready_workers(hub):
                        os.kill(chosen.choice(workers), signal.SIGKILL)
                        killed += 1

            run([client] * KILL_CLIENTS + [killer])
            status = [model.versions[1] for model in hub.status().values()]
        begun, ended = Counter(), Counter()
        for line in Path(path).read_text().splitlines():
            what, item = line.split()
            (begun if what == "begin" else ended)[item] += 1
    total = sum(answered.values())
    innocent = [item for item in lost if not begun[item]]
    print(
        f"{KILLED_MODELS} models, {killed} kills in {KILL_SECONDS} s: {total} answered, "
        f"{len(failed)} failed otherwise, {len(lost)} lost with their worker, of these "
        f"{sum(item.startswith('0/') for item in lost)} of the deadly model and {len(innocent)} "
        f"that no worker had begun with; {sum(count > 1 for count in answered.values())} answered "
        f"twice; {sum(count > 1 for count in ended.values())} ran again although they had ended; "
        f"{sum(not each.shared for each in status)} models moved"
    )
    for item, error in failed[:5]:
        print(item, repr(error))


def ready_workers(hub):
    """Return the pids of the workers that have loaded a model, or wait for models."""
    workers = [each for name in hub.status() for each in hub[name].stats().worker_processes]
    return sorted({each.pid for each in workers if each.state == "ready"} & set(children()))


def children():
    """Return the pids of the processes that this one has started."""
    found = []
    for path in Path("/proc/self/task").glob("*/children"):
        try:
            found += map(int, path.read_text().split())
        except OSError:  # the thread has ended
            continue
    return found


if __name__ == "__main__":
    logging.disable()
    for case in (sharing, idle_models, kills):
        if case.__name__ in sys.argv[1:] or not sys.argv[1:]:
            case()
