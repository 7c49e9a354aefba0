"""/live and /ready."""

import asyncio
import os
import re
import signal
import threading

import httpx
import pytest
from process_models import BadInit, Version, first_time
from thread_models import double
from waits import LONG, eventually

from service_streamer import ManagedModel, Streamer, ThreadedStreamer
from service_streamer.web import _app, _snapshots

pytest_plugins = ["web_fixtures"]
pytestmark = pytest.mark.slow


class SecondWaits(ManagedModel):
    """Loads at once in the first process, and behind the gate in the next ones."""

    def init_model(self, folder, gate):
        if not first_time(folder):
            gate("load")

    def predict(self, batch):
        return batch


@pytest.mark.not_redis
def test_a_streamer_is_live_and_ready(serves, streamers):
    client = serves(streamers())
    assert (client.get("/live").status, client.get("/live").text) == (200, "live\n")
    eventually(lambda: client.ready() == (200, ""))


def test_a_closed_streamer_is_not_ready_at_once(serves_asgi):
    streamer = ThreadedStreamer(double, 8)
    client = serves_asgi(streamer)
    assert client.ready() == (200, "")
    streamer.close()
    assert client.ready() == (503, "the streamer is closed")
    assert client.get("/live").status == 200


@pytest.mark.in_process
def test_a_streamer_that_drains_is_not_ready(serves_asgi, held, gate, threads):
    streamer = held()
    client = serves_asgi(streamer)
    threads.run(streamer.close)
    eventually(lambda: client.ready() == (503, "the streamer is closing"))
    gate.open()
    threads.join()


def test_a_streamer_whose_thread_has_ended_is_not_ready(serves_asgi):
    streamer = ThreadedStreamer(double, 8)
    client = serves_asgi(streamer)
    assert client.ready() == (200, "")
    streamer._engine.close(False)  # as the worker thread does when it cannot go on
    streamer._engine.abort()
    eventually(lambda: client.ready()[0] == 503)
    assert "has ended" in client.ready()[1]
    streamer.close()


def test_a_model_that_loads_is_not_ready(serves_asgi, process_streamers, process_gate):
    streamer = process_streamers(Version, model_init_args=["new", process_gate])
    client = serves_asgi(streamer)
    process_gate.wait_entered()
    assert client.ready() == (503, "the model is loading: 1 of 1 worker processes are starting")
    process_gate.open()
    eventually(lambda: client.ready() == (200, ""))


def test_a_model_that_cannot_be_loaded_is_not_ready(serves_asgi, process_streamers):
    streamer = process_streamers(BadInit, model_init_args=["raise"])
    client = serves_asgi(streamer)
    eventually(lambda: "no weights here" in client.ready()[1])
    assert client.ready()[0] == 503


def test_dead_workers_are_not_ready_until_they_are_replaced(
    serves_asgi, process_streamers, process_gate, tmp_path
):
    streamer = process_streamers(SecondWaits, model_init_args=[tmp_path, process_gate])
    client = serves_asgi(streamer)
    eventually(lambda: client.ready() == (200, ""))
    os.kill(streamer.stats().worker_processes[0].pid, signal.SIGKILL)
    eventually(lambda: client.ready()[0] == 503)
    process_gate.wait_entered()
    eventually(lambda: re.match("all worker processes have died; 1 of 1 ", client.ready()[1]))
    process_gate.open()
    eventually(lambda: client.ready() == (200, ""))


def test_one_of_two_workers_is_enough(serves_asgi, process_streamers):
    streamer = process_streamers(worker_num=2)
    streamer.wait_ready(LONG)
    client = serves_asgi(streamer)
    os.kill(streamer.stats().worker_processes[0].pid, signal.SIGKILL)
    assert client.ready() == (200, "")


@pytest.mark.in_process
def test_a_queue_above_its_share_is_not_ready(serves_asgi, held):
    streamer = held(max_queue=10)
    client = serves_asgi(streamer, ready_queue_share=0.5)
    streamer.submit(list(range(5)))
    assert client.ready() == (200, "")
    streamer.submit([6])
    eventually(lambda: client.ready() == (503, "the queue is 60% full: 6 of 10"))
    other = serves_asgi(streamer, ready_queue_share=None)
    assert other.ready() == (200, "")


def test_a_client_whose_server_is_away_is_not_ready(serves_asgi, tmp_path):
    address = str(tmp_path / "socket")
    with Streamer.connect(address) as streamer:
        client = serves_asgi(streamer)
        status, reason = client.ready()
        assert (status, address in reason) == (503, True)
        owner = Streamer(double, 8, mp_start_method="fork", address=address)
        eventually(lambda: client.ready() == (200, ""))
        owner.close()
        eventually(lambda: client.ready()[0] == 503)


def test_a_client_reports_why_the_owner_cannot_load_the_model(
    serves_asgi, process_streamers, tmp_path
):
    address = str(tmp_path / "socket")
    process_streamers(BadInit, model_init_args=["raise"], address=address)
    with Streamer.connect(address) as streamer:
        client = serves_asgi(streamer)
        eventually(lambda: "no weights here" in client.ready()[1])


@pytest.mark.parametrize("share", [1.5, -1])
def test_a_wrong_share_is_refused(serves_asgi, share):
    streamer = ThreadedStreamer(double, 8)
    with pytest.raises(ValueError, match=f"ready_queue_share.*{share}"):
        serves_asgi(streamer, ready_queue_share=share)


# --------------------------------------------------------------- blocking statistics


class Blocked:
    """Makes `streamer.stats` wait, and counts the calls."""

    def __init__(self, streamer, monkeypatch):
        self.calls = 0
        self.go_on = threading.Event()
        self._stats = streamer.stats
        monkeypatch.setattr(streamer, "stats", self)

    def __call__(self):
        self.calls += 1
        assert self.go_on.wait(LONG)
        return self._stats()


def test_statistics_that_block_do_not_block_the_probe(serves_asgi, monkeypatch):
    monkeypatch.setattr(_snapshots, "LIMIT", 0.05)
    with ThreadedStreamer(double, 8) as streamer:
        blocked = Blocked(streamer, monkeypatch)
        client = serves_asgi(streamer)
        for _ in range(3):
            assert client.ready() == (503, "the streamer did not answer within 0.05 s")
        assert client.get("/stats").json["streamers"]["default"]["stats"] is None
        assert blocked.calls == 1  # all have waited for the same thread
        blocked.go_on.set()
        eventually(lambda: client.ready() == (200, ""))


def test_statistics_that_block_use_few_threads(serves_asgi, monkeypatch):
    monkeypatch.setattr(_snapshots, "LIMIT", LONG)

    def used():
        return sum("AnyIO" in each.name for each in threading.enumerate())

    async def ask(app, blocked):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            answers = [asyncio.create_task(http.get("/streamer/ready")) for _ in range(50)]
            while used() < _app.MOST_THREADS:
                await asyncio.sleep(0)
            for _ in range(100):  # all requests have come as far as they can
                await asyncio.sleep(0)
            blocked.go_on.set()
            assert {(await each).status_code for each in answers} == {200}
            return used()

    with ThreadedStreamer(double, 8) as streamer:
        blocked = Blocked(streamer, monkeypatch)
        assert asyncio.run(ask(serves_asgi(streamer).app, blocked)) == _app.MOST_THREADS == 32


def test_an_error_of_the_statistics_is_reported_and_passes(serves_asgi, monkeypatch):
    with ThreadedStreamer(double, 8) as streamer:
        client = serves_asgi(streamer)
        with monkeypatch.context() as patch:
            patch.setattr(streamer, "stats", lambda: 1 / 0)
            status, reason = client.ready()
            assert (status, "division by zero" in reason) == (503, True)
        eventually(lambda: client.ready() == (200, ""))
