"""The probe and the metrics of an application whose model is saturated: how fast they answer.

wrk keeps 128 requests in flight. A second client asks for both routes in turn, at fixed times on
one connection. The latency counts from when a request was due.
"""

from __future__ import annotations

import concurrent.futures
import http.client
import time

from cases import common, web

CONNECTIONS = 128
RATE = 50.0  # requests per second, for both routes together
ROUTES = {"ready": "/streamer/ready", "metrics": "/streamer/metrics"}
FULL = 503  # /ready answers this while its queue is full


class Probes:
    """The client of the two routes."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        self.latencies: dict[str, list[float]] = {name: [] for name in ROUTES}
        self.errors = 0
        self.full = 0

    def run(self, seconds: float) -> None:
        begin = time.perf_counter()
        for n in range(round(seconds * RATE)):
            due = begin + n / RATE
            time.sleep(max(0.0, due - time.perf_counter()))
            name = list(ROUTES)[n % len(ROUTES)]
            status = self._ask(ROUTES[name])
            self.latencies[name].append(time.perf_counter() - due)
            self.full += status == FULL
            self.errors += status not in (200, FULL)

    def _ask(self, path: str) -> int:
        try:
            self._connection.request("GET", path)
            response = self._connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return 0
        return response.status


def main() -> None:
    options = common.arguments(__doc__)
    with web.serving("monitored", options.peer, options.model) as url:
        web.wrk(url, CONNECTIONS, 2)
        probes = Probes(int(url.split(":")[2].strip("/")))
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            load = pool.submit(web.wrk, url, CONNECTIONS, options.seconds + 1)
            time.sleep(0.5)  # all connections are open
            probes.run(options.seconds)
            result = load.result()
    result["errors"] += probes.errors
    for name, seconds in probes.latencies.items():
        shown = common.latencies(seconds)
        result |= {f"{name}_p50_ms": shown["p50_ms"], f"{name}_p99_ms": shown["p99_ms"]}
    result["full"] = probes.full / len(probes.latencies["ready"])
    common.answer({f"{name}@{CONNECTIONS}": value for name, value in result.items()})


if __name__ == "__main__":
    main()
