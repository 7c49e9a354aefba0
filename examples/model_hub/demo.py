"""Runs the application with thirty models and room for eight, and asks them for half a minute.

python demo.py
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import httpx
import make_models

FOLDER = Path(__file__).resolve().parent
CLIENTS = 16
RATE = 60  # requests a second, of all clients
ZIPF = 1.1  # the model of rank n is asked n ** -ZIPF times as often as the first one
LATE = 0.1  # s; a load may be logged so long after its first answer


class Answer(NamedTuple):
    """What became of a request. Times are those of `time.time`."""

    model: str
    begin: float
    end: float
    right: bool | None
    error: str


class Event(NamedTuple):
    """What the hub has logged of a version."""

    time: float
    model: str
    version: int
    what: str


@contextmanager
def web_server(models: Path, max_loaded: int, log: IO[str]) -> Iterator[str]:
    """Run gunicorn on a free port. Its output goes to `log`."""
    environment = os.environ | {"MODELS": str(models), "MAX_LOADED": str(max_loaded)}
    with socket.create_server(("127.0.0.1", 0), backlog=2 * CLIENTS) as listener:
        port = listener.getsockname()[1]
        command = [sys.executable, "-m", "gunicorn", "-c", "gunicorn_conf.py"]
        command += ["--bind", f"fd://{listener.fileno()}", "hub_app:app"]
        server = subprocess.Popen(
            command, cwd=FOLDER, env=environment, stdout=log, pass_fds=[listener.fileno()]
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        try:
            server.wait(timeout=60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


class Traffic:
    """Clients that ask the models at random times, inside a with statement."""

    def __init__(self, address: str, names: list[str]) -> None:
        self.answers: list[Answer] = []
        self._address = address
        self._names = names
        self._weights = [rank**-ZIPF for rank in range(1, len(names) + 1)]
        self._end = threading.Event()
        self._clients = [threading.Thread(target=self._ask_on, args=[n]) for n in range(CLIENTS)]

    def __enter__(self) -> Traffic:
        for client in self._clients:
            client.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for client in self._clients:
            client.join()

    def _ask_on(self, seed: int) -> None:
        rng = random.Random(seed)
        with httpx.Client(base_url=self._address, timeout=30, trust_env=False) as client:
            while not self._end.wait(rng.expovariate(RATE / CLIENTS)):
                (name,) = rng.choices(self._names, self._weights)
                self.answers.append(ask(client, name, rng))


def ask(client: httpx.Client, name: str, rng: random.Random) -> Answer:
    item, wanted = make_models.question_for(name, rng)
    begin = time.time()
    try:
        if isinstance(item, bytes):
            response = client.post(name, files={"image": item})
        else:
            response = client.post(name, data={"s": item})
        end = time.time()
        response.raise_for_status()
        (output,) = response.json()
    except (httpx.HTTPError, ValueError) as error:
        return Answer(name, begin, time.time(), None, f"{type(error).__name__}: {error}")
    return Answer(name, begin, end, None if wanted is None else output == wanted, "")


def wait_until_serving(address: str, name: str, version: int) -> None:
    """Wait for a version of a model, for a minute."""
    end = time.monotonic() + 60
    with httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
        while client.get("status").json()[name]["serving"] != version and time.monotonic() < end:
            time.sleep(0.1)


def events_of(log: str) -> list[Event]:
    lines = re.findall(
        r"^([\d.]+) model (\S+)@(\d+) (is loaded|is unloaded|serves now)$", log, re.M
    )
    return [Event(float(when), model, int(version), what) for when, model, version, what in lines]


def report(answers: list[Answer], events: list[Event], name: str, published: float) -> None:
    """Print what happened. `name`: the model that got its second version at `published`."""
    loads: dict[str, list[float]] = {}
    for event in events:
        if event.what == "is loaded":
            loads.setdefault(event.model, []).append(event.time)
    hits, misses = [], []
    for answer in answers:
        if not answer.error:
            came = any(
                answer.begin < each < answer.end + LATE for each in loads.get(answer.model, ())
            )
            (misses if came else hits).append(1e3 * (answer.end - answer.begin))
    switched = [event.time for event in events if event[1:] == (name, 2, "serves now")]
    begun = switched[0] if switched else float("inf")
    evictions = [
        event
        for event in events
        if event.what == "is unloaded" and (event[1:3] != (name, 1) or event.time < begun)
    ]
    failures = [answer.error for answer in answers if answer.error]

    print(f"{'requests':<12}{len(answers):>8,}   {len(failures)} failed")
    for kind, times in (("hits", hits), ("misses", misses)):
        print(f"{kind:<12}{len(times):>8,}   {percentiles(times)}")
    print(f"{'loads':<12}{sum(map(len, loads.values())):>8,}")
    print(f"{'evictions':<12}{len(evictions):>8,}")
    if not switched:
        raise SystemExit(f"version 2 of {name} does not serve")
    print(f"\n{name}: version 2 serves {begun - published:.2f} s after it was published")
    for version, told in (
        (1, [each.right for each in answers if each.model == name and each.end < begun]),
        (2, [each.right for each in answers if each.model == name and each.begin > begun]),
    ):
        share = f"{sum(map(bool, told)) / len(told):.0%} right" if told else "no answers"
        print(f"   version {version}: {len(told)} answers, {share}")
    if failures:
        raise SystemExit("\n".join(dict.fromkeys(failures)))


def percentiles(times: list[float]) -> str:
    if len(times) < 2:
        return ""
    found = statistics.quantiles(times, n=100)
    return f"p50 {found[49]:.1f} ms, p99 {found[98]:.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--models", type=int, default=30)
    parser.add_argument("--max-loaded", type=int, default=8)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # also ends the server

    with tempfile.TemporaryDirectory() as temporary:
        models, log = Path(temporary, "models"), Path(temporary, "log")
        names = make_models.names()[: arguments.models]
        begin = time.monotonic()
        for name in names:
            make_models.make(models, name)
        better = make_models.make_picture("shape")
        print(f"{len(names)} models made in {time.monotonic() - begin:.1f} s")
        print(f"at most {arguments.max_loaded} are loaded; {CLIENTS} clients ask {RATE} times a "
              f"second, {os.cpu_count()} cores for all\n", flush=True)  # fmt: skip
        with log.open("w") as lines, web_server(models, arguments.max_loaded, lines) as address:
            wait_until_serving(address, names[0], 1)
            with Traffic(address, names) as traffic:
                time.sleep(arguments.seconds / 2)
                published = time.time()
                make_models.publish(models / names[0], 2, better)
                wait_until_serving(address, names[0], 2)
                time.sleep(arguments.seconds / 2)
        report(traffic.answers, events_of(log.read_text()), names[0], published)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print()
