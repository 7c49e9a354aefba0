"""Compares the installed package with another commit, measured alternately.

    python benchmarks/paired.py COMMIT CASE [CASE ...] [--pairs 6]

A pair is one measurement of each, directly after each other and in alternating order, so that a
drift of the machine affects both. For each metric, it prints the medians of the commit and of this
package, and the median (lowest … highest) of the ratios of the pairs, package / commit.
"""

from __future__ import annotations

import argparse
import io
import statistics
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import plan
import venvs
from measurements import Case, Measurement
from report import number, unit_of
from run import Metrics, finish, start


def environment_of(commit: str) -> Path:
    """Build the package of a commit in an environment. Return its interpreter."""
    folder = venvs.ROOT / f"commit-{commit}"
    if not (folder / "made").exists():
        print(f"building {commit} ...", flush=True)
        executable = venvs.make(folder, venvs.requirements("ours"))
        archive = git("archive", commit)
        with tempfile.TemporaryDirectory() as source:
            with tarfile.open(fileobj=io.BytesIO(archive)) as files:
                files.extractall(source)
            wheel = ("wheel", "-q", "--no-deps", "--no-build-isolation", "-w", source, source)
            venvs.run(sys.executable, "-m", "pip", *wheel)
            wheels = map(str, Path(source).glob("*.whl"))
            venvs.run(str(executable), "-m", "pip", "install", "-q", "--no-deps", *wheels)
        (folder / "made").touch()
    return folder / "bin" / "python"


def git(*arguments: str) -> bytes:
    return subprocess.run(
        ["git", *arguments], cwd=venvs.HERE.parent, check=True, stdout=subprocess.PIPE
    ).stdout


def compare(case: Case, measurement: Measurement, pythons: list[Path], pairs: int) -> None:
    samples: list[list[Metrics]] = [[], []]
    for pair in range(pairs):
        extra = ["--seed", str(pair)] if case.seeded else []
        for which in (0, 1) if pair % 2 == 0 else (1, 0):
            samples[which].append(finish(start(measurement, pythons[which], case.seconds, extra)))
    print(f"{case.name} {measurement.peer}, {pairs} pairs")
    for metric in samples[0][0]:
        theirs, ours = ([sample[metric] for sample in each] for each in samples)
        unit = unit_of(metric)
        line = f"  {metric:14} {number(statistics.median(theirs), unit):>10} → "
        line += f"{number(statistics.median(ours), unit):>10}"
        if all(theirs):
            ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
            line += f"   {statistics.median(ratios):.3f} ({min(ratios):.2f} … {max(ratios):.2f})"
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit", help="what git knows it by: main~1, a number, a tag")
    parser.add_argument("cases", nargs="+", metavar="CASE", help="name, start or glob")
    parser.add_argument("--pairs", type=int, default=6, help="default: %(default)s")
    options = parser.parse_args()
    chosen = [
        (case, measurement)
        for case in plan.chosen(options.cases)
        for measurement in case.measurements
        if measurement.environment == "ours" and plan.part_of(case.name) != "native"
    ]
    if not chosen:
        parser.error("no such case of ours, or one for torch, whose module is not built here")
    try:
        commit = git("rev-parse", "--short", f"{options.commit}^{{commit}}").decode().strip()
    except subprocess.CalledProcessError:
        parser.error(f"no such commit: {options.commit}")
    pythons = [environment_of(commit), venvs.python("ours")]
    for case, measurement in chosen:
        compare(case, measurement, pythons, options.pairs)


if __name__ == "__main__":
    main()
