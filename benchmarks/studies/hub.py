"""What a ModelHub costs: for requests of loaded models, beside many others, and at new versions.

python -m studies.hub
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import statistics
import tempfile
import threading
import time
import timeit
from pathlib import Path

from service_streamer import ThreadedStreamer
from service_streamer.hub import ModelHub, ModelSpec

MODELS = 100
LOADED = 8
CLIENTS = 64
SECONDS = 10
SWITCHES = 100
LOAD_TIME = 0.05
SERVICE_TIME = 0.002


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
        alone, through = in_turn([streamer, hub["list"]], [1], 4000)
    print(f"one caller: {alone:.2f} us alone, {through:.2f} us through the hub")


def in_turn(callables, items, number):
    """Return the times of a request in microseconds, medians of 15 measured in turn."""
    times = [[] for _ in callables]
    for call, found in list(zip(callables, times, strict=True)) * 15:
        found.append(timeit.timeit(lambda: call.predict(items), number=number) / number)  # noqa: B023
    return [statistics.median(each) * 1e6 for each in times]


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
    overhead()
    many_models()
    switches()
