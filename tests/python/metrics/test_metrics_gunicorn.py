"""gunicorn with several processes: each scrape has the sums, also after processes were killed."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tasks import children
from waits import LONG, eventually

pytest.importorskip("prometheus_client")
pytest.importorskip("gunicorn")

from scrapes import Scrape

pytestmark = pytest.mark.slow

WEB_PROCESSES = 4

MODEL = """
def predict(batch):
    return batch
"""
APP = """
import os
from model import predict
from prometheus_client import CollectorRegistry, generate_latest, multiprocess
from service_streamer import Streamer, ThreadedStreamer, metrics

registry = CollectorRegistry()
multiprocess.MultiProcessCollector(registry)
streamer = {streamer}
metrics.register(streamer, "one", registry)

def application(environ, start_response):
    start_response("200 OK", [])
    if environ["PATH_INFO"] == "/metrics":
        return [generate_latest(registry)]
    streamer.predict([1, 2])
    return [str(os.getpid()).encode()]
"""


class Service:
    """A web server, and how many requests it has answered."""

    def __init__(self, socket):
        self._socket = str(socket)
        self._lock = threading.Lock()
        self.answered = Counter()
        """number of answers, by web process"""

    def get(self, path):
        # a connection of its own, so that any process may get it
        transport = httpx.HTTPTransport(uds=self._socket, verify=False)
        with httpx.Client(transport=transport, timeout=LONG) as client:
            return client.get(f"http://server{path}").text

    def predict(self):
        with contextlib.suppress(httpx.TransportError):  # the process was killed
            pid = int(self.get("/"))
            with self._lock:
                self.answered[pid] += 1

    def scrape(self):
        return Scrape(self.get("/metrics"))

    def is_up(self):
        return self.scrape()("up", streamer="one") == 1


@pytest.fixture
def serve(tmp_path):
    @contextlib.contextmanager
    def serve(streamer, *options):
        (tmp_path / "model.py").write_text(MODEL)
        (tmp_path / "app.py").write_text(APP.format(streamer=streamer))
        (tmp_path / "shared").mkdir()
        socket = tmp_path / "socket"
        command = ["gunicorn", "app:application", f"--workers={WEB_PROCESSES}", "--threads=4"]
        command += [f"--bind=unix:{socket}", "--no-control-socket", "--log-level=warning"]
        server = subprocess.Popen(
            [sys.executable, "-m", *command, *options],
            cwd=tmp_path,
            env=os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "shared")},
        )
        try:
            service = Service(socket)
            # it listens before it forks
            eventually(lambda: len(children(server.pid)) >= WEB_PROCESSES, LONG)
            eventually(service.is_up, LONG)
            yield service, server
            server.send_signal(signal.SIGTERM)
            assert server.wait(LONG) == 0
        finally:
            server.kill()
            server.wait()

    return serve


def load(service, last, *, until=None):
    """Send requests and scrape meanwhile; the last scrape. At the end all requests have ended."""
    with ThreadPoolExecutor(8) as pool:
        sent = [pool.submit(service.predict) for _ in range(200)]
        while not all(each.done() for each in sent):
            found = service.scrape()
            found.check_not_before(last)
            last = found
        for each in sent:
            each.result()
    return last


def kill(service, server):
    """Kill a web process that has answered requests, and wait for its successor."""
    before = children(server.pid)
    victim = next(pid for pid, _ in service.answered.most_common() if pid in before)
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: victim not in children(server.pid), LONG)
    eventually(lambda: len(children(server.pid)) == len(before), LONG)


def check_sums(serve, streamer, *options):
    with serve(streamer, *options) as (service, server):
        last = load(service, service.scrape())
        last = service.scrape()
        assert last.requests("one") == sum(service.answered.values()) == 200
        assert len(service.answered) > 1

        kill(service, server)
        last = load(service, last)
        for _ in range(8):  # whichever process answers
            found = service.scrape()
            found.check_not_before(last)
            assert found.requests("one") == sum(service.answered.values()) == 400
            assert found("items_total", streamer="one") == 800
            assert found("queue_time_seconds_count", streamer="one") == 400

        with ThreadPoolExecutor(1) as pool:
            loading = pool.submit(load, service, found)
            kill(service, server)
            found = loading.result()
        last = service.scrape()
        last.check_not_before(found)
        assert last("up", streamer="one") == 1
        assert last.requests("one") <= 600
        return last, service.answered


def test_a_streamer_in_each_process(serve):
    check_sums(serve, "ThreadedStreamer(predict, 8)")


def test_a_streamer_made_before_the_fork(serve):
    last, answered = check_sums(serve, "Streamer(predict, 8)", "--preload")
    assert last.requests("one") >= sum(answered.values())  # no process keeps them for itself
    assert last("workers", streamer="one", state="ready", device="") == 1


def test_clients_of_a_streamer_elsewhere(serve, process_streamers):
    owner = process_streamers()
    last, answered = check_sums(serve, f"Streamer.connect({owner.address!r})")
    assert last.requests("one") == owner.stats().completed >= sum(answered.values())
    assert last("max_queue_items", streamer="one") == owner.stats().max_queue
