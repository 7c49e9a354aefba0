"""The throughput with metrics that are scraped once a second, as a share of that without.

Windows with and without metrics alternate, so that a drift of the machine affects both. `kept` is
the median of the ratios of the pairs.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import os
import statistics
import tempfile
import threading
from collections.abc import Callable, Iterator

from compare import adapters

from cases import common, threads, web

INTERVAL = 1.0  # seconds between two scrapes
PAIRS = 8
# The server and its metrics, by package.
SERVED = {
    "ours": ("monitored", "/streamer/metrics"),
    "litserve": ("litserve", "/metrics/"),
    "bentoml": ("bentoml", "/metrics"),
}
Window = Callable[[], float]
"""measures the throughput once"""


@contextlib.contextmanager
def scraping(scrape: Callable[[], object]) -> Iterator[None]:
    """Scrapes at once and then once a second."""
    ended = threading.Event()

    def run() -> None:
        while True:
            scrape()
            if ended.wait(INTERVAL):
                return

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        scraped = pool.submit(run)
        try:
            yield
        finally:
            ended.set()
        scraped.result()


def in_process(seconds: float, clients: int) -> tuple[Window, Window]:
    """A new ThreadedStreamer for each window."""
    from prometheus_client import CollectorRegistry, generate_latest

    from service_streamer import metrics

    def plain() -> float:
        with adapters.streamer("ours", common.noop) as streamer:
            return threads.measure(streamer.predict, list(range(clients)), seconds)["per_s"]

    def monitored() -> float:
        with adapters.streamer("ours", common.noop) as streamer:
            registry = CollectorRegistry()
            metrics.register(streamer, "noop", registry)
            with scraping(lambda: generate_latest(registry)):
                return threads.measure(streamer.predict, list(range(clients)), seconds)["per_s"]

    return plain, monitored


@contextlib.contextmanager
def served(peer: str, seconds: float, clients: int) -> Iterator[tuple[Window, Window]]:
    """Two servers of the package, one of which has metrics."""
    server, path = SERVED[peer]
    asked = web.question(server, "noop")

    def window(url: str) -> float:
        web.wrk(url, clients, 1, asked)
        result = web.wrk(url, clients, seconds, asked)
        if result["errors"]:
            raise RuntimeError(f"{result['errors']:.0f} requests failed")
        return result["per_s"]

    with contextlib.ExitStack() as stack:
        if peer == "litserve":
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        os.environ["BENCH_METRICS"] = "0"
        plain_url = stack.enter_context(web.serving(server, peer, "noop"))
        os.environ["BENCH_METRICS"] = "1"
        url = stack.enter_context(web.serving(server, peer, "noop"))
        port = int(url.split(":")[2].partition("/")[0])

        def scrape() -> None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", path)
            response = connection.getresponse()
            if response.status != 200 or not response.read():
                raise RuntimeError(f"{path} answered {response.status}")
            connection.close()

        def monitored() -> float:
            with scraping(scrape):
                return window(url)

        yield (lambda: window(plain_url)), monitored


def compare(plain: Window, monitored: Window) -> dict[str, float]:
    pairs = []
    for n in range(PAIRS):
        if n % 2:
            pairs.append((plain(), monitored()))
        else:
            pairs.append((monitored(), plain())[::-1])
    return {
        "kept": statistics.median(with_ / without for without, with_ in pairs),
        "per_s": statistics.median(with_ for _, with_ in pairs),
        "without_per_s": statistics.median(without for without, _ in pairs),
    }


def main() -> None:
    options = common.arguments(__doc__, clients=16, served=0)
    if options.served:
        with served(options.peer, options.seconds, options.clients) as windows:
            common.answer(compare(*windows))
    else:
        common.answer(compare(*in_process(options.seconds, options.clients)))
        common.leave()


if __name__ == "__main__":
    main()
