"""The statistics, their schema, the files of the page, and what is not installed."""

import re
import subprocess
import sys

import jsonschema
import pytest
from thread_models import double
from told import missing

import service_streamer
from service_streamer import RedisStreamer, ThreadedStreamer

pytest_plugins = ["web_fixtures"]


@pytest.fixture
def streamer():
    with ThreadedStreamer(double, 8) as streamer:
        yield streamer


def validate(client):
    """Ask for the statistics; they must follow their schema."""
    schema = client.get("/stats/schema").json
    jsonschema.Draft202012Validator.check_schema(schema)
    document = client.get("/stats").json
    jsonschema.validate(document, schema)
    return document


def test_the_statistics_are_those_of_the_streamer(serves, streamer):
    streamer.predict([1, 2, 3])
    streamer.predict([4])
    document = validate(serves(streamer))
    shown = document["streamers"]["default"]
    assert (shown["kind"], shown["ready"], shown["reason"]) == ("ThreadedStreamer", True, "")
    assert shown["verdict"] == streamer.explain().splitlines()[-1]
    stats = streamer.stats()
    assert shown["stats"]["completed"] == stats.completed == 2
    assert shown["stats"]["batch_sizes"] == {"1": 1, "3": 1}
    assert shown["stats"]["service_time"]["total"] == stats.service_time.total
    assert sum(shown["stats"]["service_time"]["buckets"].values()) == 2
    assert (document["control"], document["events"]) == (None, [])


@pytest.mark.not_redis
def test_the_statistics_of_each_kind_follow_the_schema(serves_asgi, streamers):
    streamer = streamers()
    streamer.predict([1, 2, 3])
    stats = validate(serves_asgi(streamer))["streamers"]["default"]["stats"]
    assert stats["items"] == 3


def test_a_schema_finds_what_is_wrong(serves_asgi, streamer):
    client = serves_asgi(streamer)
    document = validate(client)
    document["streamers"]["default"]["stats"]["batches"] = "many"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, client.get("/stats/schema").json)


def test_several_streamers_are_shown_by_name(serves, streamer):
    with ThreadedStreamer(double, 4) as other:
        client = serves({"first": streamer, "second": other})
        streamers = validate(client)["streamers"]
        assert [each["stats"]["batch_size"] for each in streamers.values()] == [8, 4]
        assert client.get("/ready").status == 200
        other.close()
        ready = client.get("/ready")
        assert (ready.status, ready.json["streamers"]["first"]["ready"]) == (503, True)
        assert ready.json["streamers"]["second"]["reason"] == "the streamer is closed"


@pytest.mark.parametrize(
    ("shown", "error"),
    [
        ({}, "at least one streamer, not {}"),
        ({"a/b": None}, "a/b"),
        ({"": None}, "name"),
        (len, "RedisWorker.*len"),
        ({"a": 1}, "not 1"),
    ],
)
def test_what_cannot_be_shown_is_refused(serves, shown, error):
    with pytest.raises((TypeError, ValueError), match=error):
        serves(shown)


def test_readers_share_a_snapshot(serves, streamer, monkeypatch):
    calls = []
    stats = streamer.stats
    monkeypatch.setattr(streamer, "stats", lambda: calls.append(1) or stats())
    client = serves(streamer)
    taken = {client.get("/stats").json["streamers"]["default"]["stats"]["uptime"] for _ in range(9)}
    assert len(taken) == len(calls) < 9


# ------------------------------------------------------------------------- the page


def test_the_page_asks_no_other_host(serves, streamer):
    client = serves(streamer)
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy
    files = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert files
    for file in files:
        if file != "metrics":
            assert client.get(f"/{file}").status == 200, file


def test_every_module_of_the_page_can_be_loaded(serves, streamer):
    client = serves(streamer)
    left, seen = {"main.js"}, set()
    while left:
        file = left.pop()
        seen.add(file)
        answer = client.get(f"/static/js/{file}")
        assert (answer.status, answer.headers["content-type"]) == (
            200,
            "text/javascript; charset=utf-8",
        )
        assert "http:" not in answer.text
        assert "https:" not in answer.text
        left |= set(re.findall(r'from "\./(.+?)"', answer.text)) - seen
    assert {"plots.js", "constants.js"} <= seen


def test_an_unchanged_file_is_not_sent_again(serves, streamer):
    client = serves(streamer)
    etag = client.get("/static/style.css").headers["etag"]
    again = client.get("/static/style.css", {"If-None-Match": etag})
    assert (again.status, again.text) == (304, "")


@pytest.mark.parametrize(
    "path", ["nothing.js", "../__init__.py", "..%2f__init__.py", "js/../../_app.py", ""]
)
def test_no_other_file_is_served(serves, streamer, path):
    answer = serves(streamer).get(f"/static/{path}")
    assert answer.status == 404
    assert "import" not in answer.text


def test_the_library_of_the_plots_has_its_licence(serves, streamer):
    answer = serves(streamer).get("/static/vendor/LICENSE.txt")
    assert "Leon Sorokin" in answer.text


# --------------------------------------------------------------- optional libraries


def test_metrics_name_their_extra(serves, streamer, monkeypatch):
    monkeypatch.setitem(sys.modules, "service_streamer.metrics", None)
    monkeypatch.delattr(service_streamer, "metrics", raising=False)
    answer = serves(streamer).get("/metrics")
    assert answer.status == 501
    assert "pip install 'service-streamer-ng[metrics]'" in answer.text


def test_metrics_are_those_of_the_streamer(serves, streamer):
    pytest.importorskip("prometheus_client")
    streamer.predict([1])
    answer = serves({"sentiment": streamer}).get("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    completed = 'service_streamer_requests_total{outcome="completed",streamer="sentiment"} 1.0'
    assert completed in answer.text


@pytest.mark.parametrize(
    ("make", "package", "extra"),
    [("create_app", "starlette", "web"), ("flask_blueprint", "flask", "demo")],
)
def test_a_missing_library_is_named(make, package, extra):
    script = f"""
import sys
sys.modules[{package!r}] = sys.modules[{package!r} + ".applications"] = None
from service_streamer import ThreadedStreamer, web
try:
    web.{make}(ThreadedStreamer(len, 8))
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == missing(package, extra)


def test_a_redis_client_without_a_broker_is_not_ready(serves, port):
    pytest.importorskip("redis")
    with RedisStreamer(f"127.0.0.1:{port}") as streamer:
        client = serves(streamer)
        status, reason = client.ready()
        assert (status, str(port) in reason) == (503, True)
        assert "The queue cannot be read" in validate(client)["streamers"]["default"]["verdict"]
