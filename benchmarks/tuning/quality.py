"""How good the search of `service-streamer tune` is, on four models.

    python -m tuning.quality grid [MODEL…]     measures all settings: 8 minutes a model
    python -m tuning.quality replay [MODEL…]   searches in what `grid` has measured
    python -m tuning.quality search [MODEL…]   searches on the machine, as the command does

`grid` writes results/tune.json. `search` measures its best beside the best of the grid, in turn,
and prints the ratio: the best of many noisy figures is too good, so the grid's own is no measure.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import machine

from service_streamer._commands.tune.process import TrialProcess
from service_streamer._commands.tune.search.front import FINALISTS
from service_streamer._commands.tune.search.rates import TrialError, find_rate, least_p99
from service_streamer._commands.tune.search.search import Search
from service_streamer._commands.tune.search.space import Settings, Space
from service_streamer._commands.tune.search.trial import Trial
from service_streamer._commands.tune.trial import Job

from .models import MODELS, SLO
from .replay import Grid

HERE = Path(__file__).resolve().parents[1]
RESULTS = HERE / "results" / "tune.json"
SAMPLE = Path(__file__).with_name("sample.json")
SECONDS = 0.8  # of each load
SEEDS = 20  # of replayed searches
PAIRS = 5  # of the last comparison


def space(slo: float) -> Space:
    """The settings of the grid: the two policies whose results differ, and no affinity."""
    whole = Space.of_machine(len(os.sched_getaffinity(0)), slo, most_items=256, most_workers=4)
    return dataclasses.replace(
        whole, policy=("adaptive", "greedy"), max_latency=[slo / 4], affinity=(None,)
    )


def job(name: str, seconds: float = SECONDS) -> Job:
    model = f"tuning.models:{MODELS[name].__name__}"
    return Job(model, str(SAMPLE), SLO[name], seconds)


def rate_of(name: str, settings: Settings, seconds: float = SECONDS) -> list[Any]:
    """Peak, rate and smallest p99 of settings, without an early end."""
    try:
        with TrialProcess(job(name, seconds), settings) as load:
            found = find_rate(load, SLO[name], 0.0)
    except TrialError as error:
        print(f"  {settings}: {error}")
        return [0.0, 0.0, 1e6]
    least = min(least_p99(found.points), 1e6)
    return [round(found.points[0].throughput, 1), round(found.rate, 1), round(least, 5)]


def grid(name: str) -> None:
    whole = space(SLO[name])
    measured = []
    for settings in whole.grid():
        figures = rate_of(name, settings)
        print(f"{name} {len(measured) + 1}: {settings}: {figures}", flush=True)
        measured.append([dataclasses.astuple(settings), *figures])
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept[name] = {
        "command": f"python -m tuning.quality grid {name}",
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
        "machine": machine.describe().as_dict(),
        "commit": machine.commit(),
        "slo": SLO[name],
        "space": dataclasses.asdict(whole),
        "measured": measured,
    }
    lines = json.dumps(kept).replace(", [[", ",\n [[")  # one for each setting
    RESULTS.write_text(f"{lines}\n")


def recorded(name: str) -> Grid:
    return Grid(json.loads(RESULTS.read_text())[name])


def replay(name: str) -> None:
    """Print the ratio to the best of the grid, for many seeds."""
    known = recorded(name)
    ratios = sorted(known.ratio(known.search(seed)) for seed in range(SEEDS))
    print(
        f"{name:8} {known.trials + FINALISTS} of {len(known.measured)} runs: median "
        f"{statistics.median(ratios):.3f}, lowest {ratios[0]:.3f}, "
        f"{sum(ratio >= 0.95 for ratio in ratios)} of {SEEDS} seeds within 5 %"
    )


def search(name: str) -> None:
    """Search on the machine; then measure both bests, in turn."""
    known = recorded(name)
    started = time.perf_counter()
    found = Search(known.space, known.slo, trials=known.trials)
    found.run(lambda settings: TrialProcess(job(name), settings), lambda trial: show(name, trial))
    longer = job(name, 2 * SECONDS)
    again = found.run_again(lambda settings: TrialProcess(longer, settings))
    seconds = time.perf_counter() - started
    chosen = max(again, key=lambda trial: trial.rate).settings
    theirs = max(known.measured, key=lambda settings: known.measured[settings].rate)
    pairs = [
        [rate_of(name, each, 2 * SECONDS)[1] for each in (chosen, theirs)] for _ in range(PAIRS)
    ]
    ours, best = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(
        f"{name}: search {chosen}: {ours:,.0f}/s; grid {theirs}: {best:,.0f}/s; "
        f"ratio {ours / best:.3f}; {len(found.trials) + len(again)} of {len(known.measured)} "
        f"runs, {seconds:.0f} s"
    )


def show(name: str, trial: Trial) -> None:
    print(f"{name}: {trial.settings}: {trial.error or f'{trial.rate:,.0f}/s'}", flush=True)


ACTIONS: dict[str, Callable[[str], None]] = {"grid": grid, "replay": replay, "search": search}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    given = parser.parse_args(arguments)
    os.chdir(HERE)  # where the trials find tuning.models
    for name in given.models or MODELS:
        ACTIONS[given.action](name)


if __name__ == "__main__":
    main()
