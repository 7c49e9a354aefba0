"""How requests fare while versions with their own code take over, and whether memory comes back.

python -m studies.version_switch [processes threads environments] [--clients 64] [--switches 50]

Each version has a model.py and a preprocess.py. With `environments` two lists of packages take
turns; pip makes both environments before the first request is timed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path

from service_streamer.hub import ModelHub
from service_streamer.hub._memory import pss

SERVICE_TIME = 0.002  # s of a batch
FIRST = 4  # switches that are not timed
PAUSE = 0.2  # s between two switches
WAYS = {"processes": "", "threads": "in_process = true", "environments": 'environments = "auto"'}

MODEL = """
import time
import preprocess

class Model:
    def __init__(self, path):
        self.weights = bytearray(b"x" * 20_000_000)

    def __call__(self, batch):
        time.sleep({service_time})
        return [preprocess.prepare(item) for item in batch]
"""


def publish(folder: Path, number: int, way: str) -> None:
    """Write a version elsewhere, and rename it."""
    new = folder.parent.parent / "new"
    new.mkdir()
    (new / "model.py").write_text(MODEL.format(service_time=SERVICE_TIME))
    (new / "preprocess.py").write_text(f"def prepare(item):\n    return item + {number}\n")
    if way == "environments":
        (new / "requirements.txt").write_text("--no-index\n" + "--pre\n" * (number % 2))
    os.rename(new, folder / str(number))


def memory() -> float:
    """Return the megabytes of this process and its workers."""
    children = Path("/proc/self/task").glob("*/children")
    pids = [os.getpid(), *(int(pid) for each in children for pid in each.read_text().split())]
    return sum(map(pss, pids)) / 1e6


class Clients:
    """Threads that ask until they are stopped."""

    def __init__(self, hub: ModelHub, count: int) -> None:
        self.times: list[float] = []
        self.errors: list[str] = []
        self._hub = hub
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        seen = 0
        while not self._end.is_set():
            begin = time.perf_counter()
            try:
                (number,) = self._hub.predict("model", [0], timeout=60)
                if number < seen:
                    self.errors.append(f"version {number} after {seen}")
                seen = number
            except Exception as error:
                self.errors.append(f"{type(error).__name__}: {error}")
            self.times.append(time.perf_counter() - begin)


def switch_to(hub: ModelHub, folder: Path, number: int, way: str) -> float:
    """Publish a version, and return the seconds until it serves and the old one has gone."""
    begin = time.perf_counter()
    publish(folder, number, way)
    while (status := hub.status()["model"]).serving != number or len(status.versions) > 1:
        if number in status.versions and status.versions[number].error:
            raise SystemExit(status.versions[number].error)
        time.sleep(0.005)
    return time.perf_counter() - begin


def measure(way: str, clients: int, switches: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        os.environ["SERVICE_STREAMER_CACHE"] = root
        folder = Path(root, "models", "model")
        folder.mkdir(parents=True)
        text = f'model = "model.py:Model"\n{WAYS[way]}\n[options]\nbatch_size = 64\n'
        (folder / "model.toml").write_text(text)
        publish(folder, 1, way)
        with ModelHub.watch(folder.parent) as hub:
            hub.load("model")
            asking = Clients(hub, clients)
            for number in range(2, FIRST + 2):
                switch_to(hub, folder, number, way)
            before = memory()
            steady = len(asking.times)
            time.sleep(2)
            usual, first = asking.times[steady:], len(asking.times)
            taken = []
            for number in range(FIRST + 2, FIRST + switches + 2):
                taken.append(switch_to(hub, folder, number, way))
                time.sleep(PAUSE)
            asking.stop()
            after = memory()
    times = asking.times[first:]
    extra = max(times) - statistics.median(usual)
    print(
        f"{way}, {switches} switches under {clients} clients: {len(times):,} requests, "
        f"{len(asking.errors)} failed; p50 {1e3 * statistics.median(times):.1f} ms, longest "
        f"{1e3 * max(times):.0f} ms, {1e3 * extra:.0f} ms more than usual (without switches the "
        f"longest is {1e3 * max(usual):.0f} ms); a switch takes {statistics.median(taken):.2f} s; "
        f"{before:.0f} MB before, {after:.0f} MB after",
        flush=True,
    )
    for error in sorted(set(asking.errors))[:5]:
        print(f"  {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"of {', '.join(WAYS)}")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--switches", type=int, default=50)
    options = parser.parse_args()
    for way in options.ways or WAYS:
        measure(way, options.clients, options.switches)


if __name__ == "__main__":
    main()
