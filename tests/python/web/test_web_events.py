"""/events: many readers, slow readers, and none."""

import asyncio
import json
import threading

import pytest
from process_models import Version
from scripts import SUPPORT
from thread_models import double
from waits import LONG, Threads, eventually
from web_clients import BEARER, TOKEN

from service_streamer import ThreadedStreamer, web
from service_streamer.web import _app, _broadcaster
from service_streamer.web._site import Site

pytest_plugins = ["web_fixtures"]
pytestmark = pytest.mark.slow

THREADS = "service-streamer-"


@pytest.fixture
def streamer():
    with ThreadedStreamer(double, 8) as streamer:
        yield streamer


@pytest.fixture
def counted(streamer, monkeypatch):
    """A streamer that counts the calls of `stats`."""
    stats = streamer.stats
    streamer.calls = 0

    def count():
        streamer.calls += 1
        return stats()

    monkeypatch.setattr(streamer, "stats", count)
    return streamer


def threads_of_the_page():
    names = [each.name for each in threading.enumerate()]
    return [n for n in names if n in (f"{THREADS}events", f"{THREADS}snapshot")]


async def frames(port, count, path="/events"):
    """Read the first frames of one stream."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    found = []
    while len(found) < count:
        line = await reader.readline()
        assert line, "the stream has ended"
        if line.startswith(b"data: "):
            found.append(json.loads(line.removeprefix(b"data: ")))
    writer.close()
    return found


def test_200_pages_share_one_snapshot_a_second(counted, web_servers):
    server = web_servers(web.create_app(counted))

    async def read():
        streams = [frames(server.port, 3) for _ in range(200)]
        return await asyncio.wait_for(asyncio.gather(*streams), LONG)

    found = asyncio.run(read())
    assert [len(each) for each in found] == [3] * 200
    times = {frame["time"] for each in found for frame in each}
    assert counted.calls <= len(times) < 20  # all pages got the same frames
    eventually(lambda: not threads_of_the_page())


def test_nothing_runs_while_no_page_is_open(counted, web_servers):
    server = web_servers(web.create_app(counted))
    asyncio.run(frames(server.port, 1))
    eventually(lambda: not threads_of_the_page())
    asyncio.run(frames(server.port, 1))  # and it starts again


def test_a_page_may_be_open_before_the_model_is_ready(process_streamers, process_gate, web_servers):
    streamer = process_streamers(Version, model_init_args=["new", process_gate])
    server = web_servers(web.create_app(streamer))
    process_gate.wait_entered()
    (frame,) = asyncio.run(frames(server.port, 1))
    shown = frame["streamers"]["default"]
    assert (shown["ready"], "loading" in shown["reason"]) == (False, True)
    assert shown["stats"]["completed"] == 0
    process_gate.open()
    streamer.wait_ready(LONG)
    eventually(lambda: asyncio.run(frames(server.port, 1))[0]["streamers"]["default"]["ready"])


def test_a_frame_is_brief(counted, web_servers):
    counted.predict([1])
    server = web_servers(web.create_app(counted))
    (frame,) = asyncio.run(frames(server.port, 1))
    stats = frame["streamers"]["default"]["stats"]
    assert "buckets" not in stats["service_time"]
    assert "last_minute" not in stats
    assert stats["last_10s"]["service_time"]["count"] == 1


def test_a_change_is_an_event_of_the_stream(serves_asgi, streamer, web_servers):
    client = serves_asgi(streamer, TOKEN)
    server = web_servers(client.app)
    client.post("/control/default", {"batch_size": 9}, BEARER)
    (frame,) = asyncio.run(frames(server.port, 1, "/streamer/events"))
    assert [event["text"] for event in frame["events"]] == ["batch_size 8 → 9"]


# ---------------------------------------------------------------- ends of a stream


class Connection:
    """The server's side of one request, without a server."""

    def __init__(self, site):
        self.gone = asyncio.Event()
        self.stalled = asyncio.Event()
        self.sent = []
        self.task = asyncio.create_task(
            _app.EventStream(site)({"type": "http"}, self.receive, self.send)
        )

    async def receive(self):
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.append(message)
        if self.stalled.is_set() and message["type"] == "http.response.body":
            await asyncio.Event().wait()  # until it is cancelled

    async def frame(self):
        while not any(b"data: " in each.get("body", b"") for each in self.sent):
            await asyncio.sleep(0)


@pytest.fixture
def site(streamer):
    return Site(streamer, None, None, 2)


def run_connection(site, scenario):
    async def main():
        connection = Connection(site)
        await asyncio.wait_for(scenario(connection), LONG)
        await asyncio.wait_for(connection.task, LONG)
        return connection

    connection = asyncio.run(main())
    assert site.broadcaster.readers == 0
    return connection


def test_a_reader_that_stalls_is_dropped(site, monkeypatch):
    monkeypatch.setattr(_app, "STALL", 0.01)

    async def scenario(connection):
        connection.stalled.set()

    connection = run_connection(site, scenario)
    assert connection.sent[-1]["more_body"]  # it was never completed


def test_a_reader_that_leaves_is_dropped(site):
    async def scenario(connection):
        await connection.frame()
        connection.gone.set()

    run_connection(site, scenario)


def test_a_stream_ends_by_itself(site, monkeypatch):
    monkeypatch.setattr(_broadcaster, "LIFETIME", 0.1)

    async def scenario(connection):
        await connection.task

    connection = run_connection(site, scenario)
    assert connection.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


def test_too_many_readers_are_refused(site):
    async def scenario(connection):
        others = [Connection(site), Connection(site)]
        await asyncio.wait_for(others[1].task, LONG)
        assert others[1].sent[0]["status"] == 503
        connection.gone.set()
        others[0].gone.set()
        await others[0].task

    run_connection(site, scenario)


def test_a_frame_that_cannot_be_made_is_left_out(site, monkeypatch, caplog):
    make, failures = site.broadcaster._make_frame, [OSError("once")]
    monkeypatch.setattr(site.broadcaster, "_interval", 0.01)

    def fail_once():
        if failures:
            raise failures.pop()
        return make()

    monkeypatch.setattr(site.broadcaster, "_make_frame", fail_once)

    async def scenario(connection):
        await connection.frame()
        connection.gone.set()

    run_connection(site, scenario)
    assert "no frame for the readers of /events" in caplog.text


def test_a_forked_child_has_readers_of_its_own(child):
    child(
        f"""
        import os, sys, threading
        sys.path.insert(0, {SUPPORT!r})
        from thread_models import double
        from service_streamer import ThreadedStreamer
        from service_streamer.web._broadcaster import EventReader
        from service_streamer.web._site import Site

        def read():
            woken = threading.Event()
            with EventReader(site.broadcaster, woken.set) as reader:
                assert woken.wait({LONG})
                return reader.take()

        with ThreadedStreamer(double, 8) as streamer:
            site = Site(streamer, None, None, 1)
            with EventReader(site.broadcaster, lambda: None):
                pid = os.fork()
                if pid == 0:
                    os._exit(0 if read() else 1)
                assert os.waitpid(pid, 0)[1] == 0
        """
    )


# --------------------------------------------------------------------------- Flask


@pytest.fixture
def flask_events(streamer):
    """Reads /events of a Flask application, whose server has several threads."""
    flask = pytest.importorskip("flask")
    app = flask.Flask("test")
    app.register_blueprint(web.flask_blueprint(streamer, event_streams=1))

    def get(threads=True):
        environ = {"wsgi.multithread": threads}
        return app.test_client().get("/events", buffered=False, environ_overrides=environ)

    return get


def test_a_server_with_one_thread_streams_no_events(flask_events):
    in_a_new_one = Threads()  # after a test with gevent, this thread has a hub
    in_a_new_one.run(flask_events, threads=False)
    (answer,) = in_a_new_one.join()
    assert (answer.status_code, "the only thread" in answer.text) == (503, True)


def test_flask_streams_events_to_as_many_readers_as_allowed(flask_events):
    first = flask_events()
    assert (first.status_code, first.mimetype) == (200, "text/event-stream")
    parts = iter(first.response)
    assert next(parts) == _broadcaster.RETRY
    data = next(part for part in parts if part.startswith(b"data: "))
    assert "default" in json.loads(data.removeprefix(b"data: "))["streamers"]
    assert flask_events().status_code == 503
    first.close()
    eventually(lambda: not threads_of_the_page())
    second = flask_events()
    assert second.status_code == 200
    second.close()


def test_the_stream_of_flask_ends_by_itself(flask_events, monkeypatch):
    monkeypatch.setattr(_broadcaster, "LIFETIME", 0.1)
    assert flask_events().data.startswith(_broadcaster.RETRY)
    eventually(lambda: not threads_of_the_page())
