"""Compares this working tree with another commit, measured alternately.

    python benchmarks/paired.py [COMMIT] CASE [CASE ...] [--pairs 6] [--below 0.95]

Both are built as wheels. COMMIT may also be the interpreter of another build, as
build/venv-portable/bin/python, which is compared with the package that is installed here. Without
COMMIT, each case is compared with the commit that did best in it: best.json has these, and their
figures. So small losses of many changes cannot add up unseen. With --below, it ends with a
list of the metrics that are worse than that share of the other commit.

A pair is one measurement of each, directly after each other and in alternating order, so that a
drift of the machine affects both. For each metric, it prints the medians of the commit and of this
tree, and the median (lowest … highest) of the ratios of the pairs, this tree / commit.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import statistics
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import plan
import venvs
from measurements import BROKER, Case, Measurement
from report import number, unit_of
from run import Metrics, finish, start

BEST = Path(__file__).resolve().parent / "best.json"


def environment_of(tree: str, name: str) -> Path:
    """Build the package of a commit or tree in an environment. Return its interpreter."""
    folder = venvs.ROOT / name
    made, wanted = folder / "made", f"{tree} {hashlib.sha256(venvs.pins('ours')).hexdigest()}"
    if not made.exists() or made.read_text() != wanted:
        print(f"building {name} ...", flush=True)
        executable = venvs.make(folder, venvs.requirements("ours"))
        archive = git("archive", tree)
        with tempfile.TemporaryDirectory() as source:
            with tarfile.open(fileobj=io.BytesIO(archive)) as files:
                files.extractall(source)
            wheel = ("wheel", "-q", "--no-deps", "--no-build-isolation", "-w", source, source)
            venvs.run(sys.executable, "-m", "pip", *wheel)
            wheels = map(str, Path(source).glob("*.whl"))
            venvs.run(str(executable), "-m", "pip", "install", "-q", "--no-deps", *wheels)
        made.write_text(wanted)
    return folder / "bin" / "python"


def environment_of_this_tree() -> Path:
    """Build the package as it is here. Files that git does not know are left out."""
    changed = git("stash", "create").decode().strip() or "HEAD"
    return environment_of(git("rev-parse", f"{changed}^{{tree}}").decode().strip(), "this-tree")


def git(*arguments: str) -> bytes:
    return subprocess.run(
        ["git", *arguments], cwd=venvs.HERE.parent, check=True, stdout=subprocess.PIPE
    ).stdout


def short(commit: str) -> str:
    return git("rev-parse", "--short", f"{commit}^{{commit}}").decode().strip()


def best_known(case: Case) -> str | None:
    """The commit that did best in the case; None: it is not in the file."""
    known = json.loads(BEST.read_text())["cases"]
    return short(known[case.name]["commit"]) if case.name in known else None


def worth(metric: str, ratio: float) -> float | None:
    """The ratio so that less than 1 is worse. None: the metric is neither good nor bad."""
    if metric in ("request_cpu_us", "request_switches") or unit_of(metric) == "ms":
        return 1 / ratio if ratio else None
    return ratio if unit_of(metric) in ("/s", "x") else None


def compare(
    case: Case, measurement: Measurement, pythons: list[Path], pairs: int, below: float
) -> list[str]:
    """Print each metric. Return a line for each that is worse than `below`."""
    worse = []
    samples: list[list[Metrics]] = [[], []]
    for pair in range(pairs):
        extra = ["--seed", str(pair)] if case.seeded else []
        for which in (0, 1) if pair % 2 == 0 else (1, 0):
            samples[which].append(finish(start(measurement, pythons[which], case.seconds, extra)))
    print(f"{case.name} {measurement.peer}, {pairs} pairs with {pythons[0].parts[-3]}")
    for metric in (metric for metric in samples[0][0] if metric in samples[1][0]):
        theirs, ours = ([sample[metric] for sample in each] for each in samples)
        unit = unit_of(metric)
        line = f"  {metric:14} {number(statistics.median(theirs), unit):>10} → "
        line += f"{number(statistics.median(ours), unit):>10}"
        if all(theirs):
            ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
            line += f"   {statistics.median(ratios):.3f} ({min(ratios):.2f} … {max(ratios):.2f})"
            value = worth(metric, statistics.median(ratios))
            if value is not None and value < below:
                worse.append(f"{case.name:24} {line.strip()}")
        print(line, flush=True)
    return worse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "cases",
        nargs="+",
        metavar="[COMMIT] CASE",
        help="what git knows the commit by: main~1, a number, a tag; name, start or glob of a case",
    )
    parser.add_argument("--pairs", type=int, default=6, help="default: %(default)s")
    parser.add_argument("--below", type=float, default=0, help="list what is worse than this share")
    options = parser.parse_args()
    given = None if plan.chosen(options.cases[:1]) else options.cases.pop(0)
    chosen = [
        (case, measurement)
        for case in (plan.chosen(options.cases) if options.cases else [])
        for measurement in case.measurements
        if measurement.environment == "ours" and measurement.peer != BROKER
        if plan.part_of(case.name) != "native"
    ]
    if not chosen:
        parser.error("no such case of ours, or one for torch, whose module is not built here")
    worse = []
    for case, measurement in chosen:
        if given and Path(given).is_file():
            pythons = [Path(given).absolute(), venvs.python("ours")]
            worse += compare(case, measurement, pythons, options.pairs, options.below)
            continue
        try:
            commit = short(given) if given else best_known(case)
        except subprocess.CalledProcessError:
            parser.error(f"no such commit: {given or f'that of {case.name} in {BEST.name}'}")
        if commit is None:
            print(f"{case.name}: not in {BEST.name}, so give a commit")
            continue
        pythons = [environment_of(commit, f"commit-{commit}"), environment_of_this_tree()]
        worse += compare(case, measurement, pythons, options.pairs, options.below)
    if options.below:
        print(f"\nbelow {options.below} of the other commit:", *(worse or ["nothing"]), sep="\n  ")


if __name__ == "__main__":
    main()
