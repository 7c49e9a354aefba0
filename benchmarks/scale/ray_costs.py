"""Measures what calls of an actor cost in Ray; runs in an environment with Ray, alone.

`ray_costs.py` prints a line of JSON: for each number of items per call, the calls per second, and
seconds of a core per call in the actor, in the caller, and in all other processes of Ray.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

COUNTS = (1, 4, 16, 64, 256)
SIZES = (100, 10_000, 100_000)
IN_FLIGHT = 32


def processor_time(pid: int) -> float:
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in files) / 1e9


def session(of: int) -> list[int]:
    """All processes of the process group or below it: this one, the raylet, its workers."""
    found = [of]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            found += map(int, children.read_text().split())
    return found


def measure(ray: Any, owner: Any, pid: int, items: list[bytes], seconds: float) -> dict[str, float]:
    here = os.getpid()

    def used() -> tuple[float, float, float]:
        others = sum(processor_time(each) for each in session(here) if each not in (here, pid))
        return processor_time(pid), processor_time(here), others

    flying = [owner.echo.remote(items) for _ in range(IN_FLIGHT)]
    before, begin, calls = used(), time.monotonic(), 0
    while time.monotonic() < begin + seconds:
        done, flying = ray.wait(flying)
        ray.get(done)
        calls += len(done)
        flying += [owner.echo.remote(items) for _ in done]
    took = time.monotonic() - begin
    costs = [(now - was) / calls for now, was in zip(used(), before, strict=True)]
    ray.get(flying)
    return dict(zip(("per_s", "actor", "caller", "others"), [calls / took, *costs], strict=True))


def main() -> None:
    import ray

    ray.init(
        "local", num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False
    )

    @ray.remote(max_concurrency=100)
    class Owner:
        async def echo(self, items: list[bytes]) -> list[bytes]:
            return items

        async def pid(self) -> int:
            return os.getpid()

    owner = Owner.remote()
    pid = ray.get(owner.pid.remote())
    points = {}
    for count in COUNTS:
        points[f"{count} × 100"] = measure(ray, owner, pid, [b"x" * 100] * count, 1.0)  # noqa: RUF001
    for size in SIZES[1:]:
        points[f"16 × {size}"] = measure(ray, owner, pid, [b"x" * size] * 16, 1.0)  # noqa: RUF001
    print(json.dumps({"ray": ray.__version__, "points": points}), flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()
