"""`service-streamer top`: a snapshot, a live screen, and what cannot be reached."""

import dataclasses
import io
import json
import os
import signal
import subprocess
import time

import pytest
from command_processes import COMMAND, Terminal
from hub_models import Folder
from thread_models import double
from waits import LONG, eventually

from service_streamer import Streamer, StreamerStats, StreamStats, ThreadedStreamer
from service_streamer._commands.bench.results import Window
from service_streamer._commands.top.sources import PageStats, is_broker
from service_streamer._redis import explanation
from service_streamer._redis.protocol import CLAIM_AFTER
from service_streamer._statistics.parts import ConsumerStats
from service_streamer.hub import ModelHub, ModelLoadError, ModelSpec
from service_streamer.web import _health
from service_streamer.web._schema import to_json

pytest_plugins = ["commands"]

STREAM = StreamStats(
    length=12,
    pending=4,
    oldest_waiting=0.5,
    consumers=(ConsumerStats("host-1-abc", 4, 0.1), ConsumerStats("host-2-def", 0, 45.0)),
    refused=0,
)


def top(*arguments):
    wide = {**os.environ, "COLUMNS": "300"}  # the folder of a test may have a long name
    return subprocess.run(
        [*COMMAND, "top", *arguments], capture_output=True, text=True, timeout=LONG, env=wide
    )


def printed(stats, width, *others):
    """What a screen of that width shows of statistics, and of others after them."""
    console = pytest.importorskip("rich.console")
    from service_streamer._commands.top.screen import Screen

    file = io.StringIO()
    screen = Screen(console.Console(file=file, width=width, highlight=False))
    for each in (stats, *others):
        file.truncate(file.seek(0))
        screen.update("some name", each)
    return file.getvalue()


@pytest.fixture
def stats():
    with ThreadedStreamer(lambda batch: batch, 8) as streamer:
        for _ in range(20):
            streamer.predict([1, 2])
        return streamer.stats()


@pytest.fixture
def two_readings(process_streamers):
    streamer = process_streamers()
    streamer.predict([1])
    before = streamer.stats()
    streamer.predict([2])
    return before, streamer.stats()


def test_rates_sizes_and_the_verdict_are_shown(stats):
    text = printed(stats, 100)
    for what in ("some name", "policy adaptive", "completed", "2.0 of 8 items", "idle", "p99"):
        assert what in text
    assert "is the limit" in text


@pytest.mark.parametrize("width", [24, 40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(two_readings, width):
    before, now = two_readings
    for text in (printed(before, width, now), printed(STREAM, width)):
        assert max(map(len, text.splitlines())) <= width
        assert len(text.splitlines()) < 40


def test_the_busy_share_needs_two_readings_of_one_engine(two_readings):
    before, now = two_readings
    assert "%" not in printed(before, 100).partition("busy")[2]
    assert "%" in printed(before, 100, now).partition("busy")[2]
    other = dataclasses.replace(before, engine_id="another")
    assert "%" not in printed(other, 100, now).partition("busy")[2]


def test_busy_is_the_same_for_top_and_bench(two_readings):
    pytest.importorskip("rich")
    from service_streamer._commands.top.streamer_view import _busy

    before, now = two_readings
    (worker,) = now.worker_processes
    times = (worker.decode_time, worker.predict_time, worker.encode_time)
    assert worker.busy_time == now.busy_time == sum(time.total for time in times)
    shown = _busy(worker, before.worker_processes[0], now.uptime - before.uptime)
    assert shown == Window.between(before, now).busy > 0


@pytest.mark.parametrize(("idle", "silent"), [(CLAIM_AFTER - 1, False), (CLAIM_AFTER, True)])
def test_a_worker_is_silent_for_the_verdict_when_it_is_for_the_probe(idle, silent):
    stream = dataclasses.replace(STREAM, consumers=(ConsumerStats("host-1-abc", 0, idle),))
    assert ("silent" in explanation.verdict(stream)) == silent
    assert ("silent" in _health._of_consumers(stream)) == silent


NOBODY = "No worker has joined the whole queue."
TAKEN = "Others take requests over within 8 s of a death."


@pytest.mark.parametrize(
    ("workers", "text"),
    [
        ([], NOBODY),
        ([("a", 4, 1.0), ("b", 0, 1.0)], ""),
        (
            [("a", 4, 1.0), ("b", 1, 4.5)],
            f"1 of 2 workers is silent: b (for 4.5 s, with 1 request). {TAKEN}",
        ),
        ([("a", 4, 1.0), ("b", 0, 4.5)], ""),
        ([("a", 4, 1.0), ("b", 0, 45)], "1 of 2 workers is silent: b (for 45 s, with 0 requests)."),
        (
            [("a", 4, 9.0), ("b", 0, 7.0)],
            "12 requests wait, and all workers have been silent for more than 6 s.",
        ),
        (
            [("a", 4, 1.0), *((f"b{n}", n, 5.0) for n in range(1, 6))],
            "5 of 6 workers are silent: b5 (for 5 s, with 5 requests), b4 (for 5 s, with 4 "
            f"requests), b3 (for 5 s, with 3 requests) and 2 more. {TAKEN}",
        ),
    ],
)
def test_silent_workers_are_named_with_what_they_hold(workers, text):
    stream = dataclasses.replace(STREAM, consumers=tuple(ConsumerStats(*each) for each in workers))
    found = explanation.obstacle(stream)
    assert found.startswith(text) if text else found == ""
    assert explanation.verdict(stream).startswith(found)


def test_a_queue_has_rates_and_a_latency_after_two_readings():
    pytest.importorskip("rich")
    from service_streamer._commands.top.queue_view import Flow, Readings

    def reading(length, added):
        return dataclasses.replace(STREAM, length=length, added=added)

    readings = Readings()
    assert readings.add(0.0, reading(0, 100)) is None
    assert readings.add(5.0, reading(10, 600)) == Flow(sent=100.0, ended=98.0, latency=5 / 98)
    assert readings.add(11.0, reading(10, 600)) == Flow(sent=0.0, ended=0.0, latency=None)
    assert readings.add(12.0, reading(0, 5)) is None  # the queue has begun anew
    assert readings.add(13.0, reading(0, None)) is None  # an old broker
    text = printed(reading(0, 1), 100, reading(0, 2))
    assert "sent" in text
    assert "requests/s" not in printed(STREAM, 100, STREAM)


def test_a_streamer_without_a_request_is_shown(process_streamers):
    assert "nothing to explain" in printed(process_streamers().stats(), 80)


def test_a_queue_is_shown():
    text = printed(STREAM, 100)
    for what in ("8 waiting, 4 at workers", "host-1-abc", "45 s", "The workers are the limit"):
        assert what in text


@pytest.fixture
def hub_readings():
    """What a page has of a hub before and after a request."""

    def fails(batch):
        raise RuntimeError("no weights")

    specs = {
        "double": ModelSpec(double, batch_size=8, pin=True),
        "idle": ModelSpec(double, batch_size=8),
        "broken": ModelSpec(fails, batch_size=8, warmup=[1]),
    }

    def read(hub, time):
        models = to_json(hub.status())
        look = {"ready": True, "reason": "", "verdict": "1 version is loaded.", "models": models}
        return PageStats(time, {"default": look})

    with ModelHub(specs) as hub:
        hub.predict("double", [1])
        with pytest.raises(ModelLoadError):
            hub.predict("broken", [1])
        before = read(hub, time.time())
        for _ in range(30):
            hub.predict("double", [1])
        return before, read(hub, before.time + 2.0)


def test_the_versions_of_a_hub_are_rows_and_what_is_loaded_comes_first(hub_readings):
    before, now = hub_readings
    rows = [line.split() for line in printed(before, 100, now).splitlines() if "@1 " in line]
    assert [row[0] for row in rows[:3]] == ["broken@1", "double@1", "idle@1"]
    assert rows[1][1:4] == ["serves", "pinned", "ready"]
    assert {"31", "15"} <= set(rows[1])  # requests, and in each second
    assert "no weights" in printed(now, 100)
    assert max(map(len, printed(now, 24).splitlines())) <= 24


@pytest.mark.slow
def test_the_models_of_a_page_are_read(services, tmp_path):
    pytest.importorskip("uvicorn")
    pytest.importorskip("uvicorn")
    folder = Folder(tmp_path)
    folder.add(3)
    places = ("--http", "127.0.0.1:0", "--monitor", "127.0.0.1:0")
    line = services("serve", str(folder.root / "models"), *places).line("web interface is at")
    url = line[line.index("http://") :].strip()
    done = top(url, "--once", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["hubs"]["default"]["models"]["times"]["serving"] == 3
    done = top(f"{url}live", "--once", "--json")
    assert done.returncode == 2
    assert f"{url}live/stats: 404 Not Found" in done.stderr


@pytest.mark.slow
def test_one_snapshot_as_json_has_the_fields_of_the_statistics(serve, address):
    serve("process_models:double").line("is served")
    with Streamer.connect(address) as client:
        client.predict([1])
    done = top(address, "--once", "--json")
    assert done.returncode == 0
    values = json.loads(done.stdout)
    assert set(values) == {field.name for field in dataclasses.fields(StreamerStats)}
    assert (values["completed"], values["last_10s"]["completed"]) == (1, 1)
    assert values["worker_processes"][0]["state"] == "ready"


@pytest.mark.slow
def test_one_snapshot_is_printed(serve, address):
    pytest.importorskip("rich")
    serve("process_models:double").line("is served")
    done = top(address, "--once")
    assert done.returncode == 0
    assert address in done.stdout


@pytest.mark.over_redis
def test_a_queue_at_a_broker_is_read(shared_redis_server):
    done = top(shared_redis_server.url, "--prefix", "of nobody", "--once", "--json")
    assert done.returncode == 0
    values = json.loads(done.stdout)
    assert set(values) == {field.name for field in dataclasses.fields(StreamStats)}
    assert (values["length"], values["consumers"]) == (0, [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["@nobody listens here"], "nothing listens at @nobody listens here"),
        ([""], "address must be a path"),
        (["http://127.0.0.1:1/"], "http://127.0.0.1:1/stats cannot be read: [Errno 111]"),
        (["@a", "--json"], "--json needs --once"),
        (["@a", "--interval", "0"], "--interval must be more than 0"),
    ],
)
def test_errors_are_reported_without_a_traceback(arguments, message):
    done = top(*arguments)
    assert done.returncode == 2
    line, *address = done.stderr.splitlines()
    assert message in line
    assert len(address) <= 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("place", "is_one"),
    [
        *(("broker:6379", True), ("[::1]:6379", True), ("rediss+cluster://a,b", True)),
        *(("@broker:6379", False), ("/run/broker:6379", False), ("./broker:6379", False)),
    ],
)
def test_a_broker_is_distinguished_from_the_address_of_a_streamer(place, is_one):
    assert is_broker(place) == is_one


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["redis://", ""])
def test_a_broker_that_is_unreachable_is_named(port, scheme):
    pytest.importorskip("redis")
    done = top(f"{scheme}127.0.0.1:{port}", "--once")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"127.0.0.1:{port} is unreachable" in line


@pytest.mark.slow
def test_the_live_screen_survives_its_server_and_ends_with_ctrl_c(serve, address):
    pytest.importorskip("rich")
    service = serve("process_models:double")
    service.line("is served")
    with Terminal("top", address, "--interval", "0.05") as shown:
        shown.wait_for("nothing to explain")
        service.signal(signal.SIGKILL)
        shown.wait_for("trying")
        serve("process_models:double").line("is served")
        with Streamer.connect(address) as client:
            for number in range(20):
                client.predict([number])
        shown.wait_for("is the limit")
        shown.process.send_signal(signal.SIGINT)
        eventually(lambda: shown.process.poll() is not None)
    assert shown.process.returncode == 0
