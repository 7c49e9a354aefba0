"""What one scrape costs: in a process, and over HTTP from one of four processes of gunicorn."""

from __future__ import annotations

import http.client
import os
import tempfile
import time
from collections.abc import Callable

from compare import adapters
from prometheus_client import CollectorRegistry, generate_latest

from cases import common, web
from service_streamer import metrics

PROCESSES = 4


def times(what: Callable[[], object], seconds: float) -> dict[str, float]:
    """Call it again and again; the latencies."""
    what()
    taken = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        what()
        taken.append(time.perf_counter() - start)
    return common.latencies(taken)


def in_process(seconds: float) -> dict[str, float]:
    streamer = adapters.streamer("ours", common.noop)
    registry = CollectorRegistry()
    metrics.register(streamer, "noop", registry)
    for _ in range(1000):
        streamer.predict([1])
    return times(lambda: generate_latest(registry), seconds)


def of_processes(seconds: float) -> dict[str, dict[str, float]]:
    """The latencies of /metrics and, for comparison, of /live, of all processes together."""
    with tempfile.TemporaryDirectory() as directory:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = directory
        with web.serving("scraped", "ours", "noop") as url:
            port = int(url.split(":")[2].strip("/"))

            def get(path: str) -> bytes:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                connection.request("GET", path)
                response = connection.getresponse()
                if response.status != 200:
                    raise RuntimeError(f"{path} answered {response.status}")
                body = response.read()
                connection.close()
                return body

            until = time.monotonic() + web.START_SECONDS
            pids = set[bytes]()
            while len(pids) < PROCESSES:
                pids.add(get("/"))
                if time.monotonic() > until:
                    raise RuntimeError(f"only {len(pids)} processes answer")
            return {
                route: times(lambda path=f"/streamer/{route}": get(path), seconds)  # type: ignore[misc]
                for route in ("live", "metrics")
            }


def main() -> None:
    options = common.arguments(__doc__)
    alone = in_process(options.seconds)
    routes = of_processes(options.seconds)
    common.answer(
        {
            "p50_ms": alone["p50_ms"],
            "p99_ms": alone["p99_ms"],
            "of_4_p50_ms": routes["metrics"]["p50_ms"],
            "of_4_p99_ms": routes["metrics"]["p99_ms"],
            "live_p50_ms": routes["live"]["p50_ms"],
        }
    )
    common.leave()


if __name__ == "__main__":
    main()
