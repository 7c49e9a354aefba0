"""The server of a ModelHub beside mosec and LitServe, with 128 connections.

python -m studies.server
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import venvs

CONNECTIONS = 128
CASES = {
    "noop": ("hub", "mosec", "litserve"),
    "model": ("hub", "mosec", "litserve"),
    "row": ("hub",),
    "infer": ("hub",),
    "head": ("hub", "mosec"),  # LitServe takes no binary tensor
}
TITLES = {
    "noop": "no-op",
    "model": "5 ms + 0.2 ms per item, batches of 64 (limit 3,596/s)",
    "row": "no-op on 8 numbers, :predict",
    "infer": "no-op on 8 numbers, infer in JSON",
    "head": "no-op on a binary tensor of 602 KB",
}


def measure(server: str, model: str, seconds: float) -> dict[str, float]:
    """Return what wrk measured of a server, which is started for that."""
    python = sys.executable if server in ("hub", "onnx") else str(venvs.python(server))
    command = [python, "-m", "cases.web", "--server", server, "--model", model]
    command += ["--connections", str(CONNECTIONS), "--seconds", str(seconds)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
            env={**os.environ, "BENCH_METRICS": "0", "PROMETHEUS_MULTIPROC_DIR": folder},
        )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {key.partition("@")[0]: value for key, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    options = parser.parse_args()
    for model in options.cases:
        servers = CASES[model]
        runs: dict[str, list[dict[str, float]]] = {server: [] for server in servers}
        for _ in range(options.rounds):
            for server in servers:
                runs[server].append(measure(server, model, options.seconds))
        print(f"\n{TITLES[model]}, {CONNECTIONS} connections, medians of {options.rounds}:")
        ours = statistics.median(each["per_s"] for each in runs["hub"])
        for server, found in runs.items():
            rate, slowest = (
                statistics.median(run[key] for run in found) for key in ("per_s", "p99_ms")
            )
            errors = sum(run["errors"] for run in found)
            print(f"  {server:9} {rate:8,.0f}/s  p99 {slowest:6.1f} ms  {errors:.0f} errors  "
                  f"ours / it: {ours / rate:.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
