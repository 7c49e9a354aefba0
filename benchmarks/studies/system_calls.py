"""How many system calls a lone caller's request makes, such as the futex calls of a thread.

python -m studies.system_calls [threads|processes|redis ...] [--requests 1000]

Counts those of N and of 2 N requests by `strace -f -c`. What is more is of N requests: the start
and the end of the processes are not counted.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from cases import common
from compare import adapters

KINDS = {"threads": (0, ""), "processes": (1, ""), "redis": (1, "redis")}
LEAST = 0.01  # calls of a request that are shown


def calls(kind: str, requests: int) -> Counter[str]:
    """The system calls of all processes of a program that makes so many requests."""
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts"
        command = ["strace", "-f", "-c", "-U", "calls,name", "-o", str(counts), sys.executable]
        command += ["-m", "studies.system_calls", "--inside", kind, "--requests", str(requests)]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        rows = (line.split() for line in counts.read_text().splitlines())
        pairs = (row for row in rows if len(row) == 2 and row[0].isdigit() and row[1] != "total")
        return Counter({name: int(count) for count, name in pairs})


def make_requests(kind: str, requests: int) -> None:
    """Make requests, one after the other, and leave."""
    predict = adapters.predict("ours", common.noop, *KINDS[kind])
    for number in range(requests):
        predict([number])
    common.leave()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--inside", choices=list(KINDS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        make_requests(options.inside, options.requests)
    for kind in options.kinds or KINDS:
        found = calls(kind, 2 * options.requests) - calls(kind, options.requests)
        shown = {name: count / options.requests for name, count in found.most_common()}
        print(f"{kind}, calls per request:")
        print(*(f"  {name:16} {n:.2f}" for name, n in shown.items() if n >= LEAST), sep="\n")


if __name__ == "__main__":
    main()
