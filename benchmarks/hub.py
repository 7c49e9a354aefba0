"""What a ModelHub costs, and how requests fare when models and processes come and go.

python benchmarks/hub.py [overhead | many_models | switches | idle_models | kills]…
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
import timeit
from collections import Counter
from pathlib import Path

from service_streamer import ManagedModel, Streamer, ThreadedStreamer, WorkerLost
from service_streamer.hub import ModelHub, ModelSpec
from service_streamer.hub._memory import of_workers, pss

MODELS = 100
LOADED = 8
CLIENTS = 64
SECONDS = 10
SWITCHES = 100
LOAD_TIME = 0.05
SERVICE_TIME = 0.002
IDLE_MODELS = 50
IDLE_MEGABYTES = 2  # of each
KILLED_MODELS = 30
KILL_SECONDS = 60
KILL_CLIENTS = 16


def model(batch):
    time.sleep(SERVICE_TIME)
    return batch


def load():
    """Return the streamer of a model that takes a while to load."""
    time.sleep(LOAD_TIME)
    return ThreadedStreamer(model, 64)


def load_version(path):
    """Return the model in the folder of a version."""
    time.sleep(LOAD_TIME)
    return model


def overhead():
    """Print the time of a request with the hub and without it, measured in turn."""
    streamer = ThreadedStreamer(list, 8)
    with streamer, ModelHub({"list": ModelSpec(list, batch_size=8)}) as hub:
        hub.load("list")
        calls = {"streamer": streamer, "hub": hub["list"]}
        times = {name: [] for name in calls}
        for name, call in list(calls.items()) * 15:
            times[name].append(timeit.timeit(lambda: call.predict([1]), number=4000) / 4000)  # noqa: B023
    alone, through = (statistics.median(each) * 1e6 for each in times.values())
    print(f"one caller: {alone:.2f} us alone, {through:.2f} us through the hub")


def zipf(hub, names):
    """Return the times of requests that found their model loaded, of the others, and errors."""
    weights = [1 / rank**1.1 for rank in range(1, len(names) + 1)]
    hits, misses, errors = [], [], []
    end = time.monotonic() + SECONDS

    def client(seed):
        chosen = random.Random(seed)
        while time.monotonic() < end:
            (name,) = chosen.choices(names, weights)
            loaded = hub._models[name].versions[1].streamer is not None
            begin = time.perf_counter()
            try:
                hub.predict(name, [1])
            except Exception as error:
                errors.append(error)
            (hits if loaded else misses).append(time.perf_counter() - begin)

    run([client] * CLIENTS)
    return hits, misses, errors


def many_models():
    """Print the times of hits with many models and with only those that are loaded."""
    for count in (LOADED, MODELS):
        names = [f"model-{number}" for number in range(count)]
        with ModelHub({each: ModelSpec.factory(load) for each in names}, max_loaded=LOADED) as hub:
            for name in names[:LOADED]:
                hub.load(name)
            hits, misses, errors = zipf(hub, names)
        print(
            f"{count} models, {LOADED} loaded, {CLIENTS} clients, Zipf(1.1): {len(hits)} hits, "
            f"p50 {quantile(hits, 50):.1f} ms, p99 {quantile(hits, 99):.1f} ms; "
            f"{len(misses)} misses, p99 {quantile(misses, 99):.0f} ms; {len(errors)} failed"
        )


def switches():
    """Print how requests fare while new versions take over."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root, "models", "model")
        (folder / "1").mkdir(parents=True)
        (folder / "model.toml").write_text(
            'model = "hub:load_version"\n[options]\nbatch_size = 64\n'
        )
        times, errors, stop = [], [], threading.Event()
        with ModelHub.watch(folder.parent) as hub:
            hub.load("model")

            def client(_):
                while not stop.is_set():
                    begin = time.perf_counter()
                    try:
                        hub.predict("model", [1])
                    except Exception as error:
                        errors.append(error)
                    times.append(time.perf_counter() - begin)

            def publish(_):
                for number in range(2, SWITCHES + 2):
                    Path(root, "new").mkdir()
                    os.rename(Path(root, "new"), folder / str(number))
                    begin = time.perf_counter()
                    while hub.status()["model"].serving != number:
                        time.sleep(0.005)
                    noticed.append(time.perf_counter() - begin - LOAD_TIME)
                stop.set()

            noticed = []
            run([client] * CLIENTS + [publish])
    print(
        f"{SWITCHES} new versions under {CLIENTS} clients: {len(times)} requests, "
        f"{len(errors)} failed, p50 {quantile(times, 50):.1f} ms, "
        f"longest {max(times) * 1e3:.0f} ms; "
        f"a version serves {max(noticed) * 1e3:.0f} ms after its folder and load at most"
    )


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
    innocent = [item for item in lost if not begun[item]]
    print(
        f"{KILLED_MODELS} models, {killed} kills in {KILL_SECONDS} s: {len(answered)} answered, "
        f"{len(failed)} failed otherwise, {len(lost)} lost with their worker, of these "
        f"{sum(item.startswith('0/') for item in lost)} of the deadly model and {len(innocent)} "
        f"that no worker had begun with; {sum(count > 1 for count in ended.values())} ran to the "
        f"end twice; {sum(not each.shared for each in status)} models moved"
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


def quantile(times, percent):
    """Return a percentile in milliseconds."""
    if len(times) < 2:
        return float("nan")
    return 1e3 * statistics.quantiles(times, n=100)[percent - 1]


def run(functions):
    """Run each function in a thread, with its number."""
    threads = [
        threading.Thread(target=each, args=(number,))
        for each, number in zip(functions, itertools.count())
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    logging.disable()
    cases = [overhead, many_models, switches, idle_models, kills]
    for case in cases:
        if case.__name__ in sys.argv[1:] or not sys.argv[1:]:
            case()
