"""POST /trace: a timeline over HTTP."""

import asyncio

import pytest
import traces
from process_models import double
from waits import LONG
from web_clients import BEARER, BROWSER, TOKEN

from service_streamer import ThreadedStreamer, web

pytest_plugins = ["web_fixtures"]


@pytest.fixture
def streamer():
    with ThreadedStreamer(double, 8) as streamer:
        yield streamer


def test_a_trace_can_be_downloaded(serves, streamer, threads):
    client = serves({"a": streamer}, TOKEN)
    done = []

    def keep_busy():
        while not done:
            streamer.predict([1])

    threads.run(keep_busy)
    answer = client.post("/trace?streamer=a&seconds=0.05", None, BEARER)
    done.append(True)
    threads.join()
    assert answer.status == 200
    entries, metadata = traces.parsed(answer.text)
    assert metadata["seconds"] >= 0.05
    assert len(traces.batches(entries)) > 0


def test_a_trace_needs_the_permission_to_change_settings(serves, streamer):
    for control, headers, status in ((None, BEARER, 403), (TOKEN, BROWSER, 401)):
        answer = serves(streamer, control).post("/trace", None, headers)
        assert answer.status == status


@pytest.mark.parametrize(
    ("query", "status", "complaint"),
    [
        ("?seconds=x", 422, "could not convert"),
        ("?seconds=0", 422, "seconds must be more than 0"),
        ("?seconds=nan", 422, "seconds must be"),
        ("?seconds=61", 422, "seconds must be at most 60"),
        ("?streamer=b", 404, "there is no streamer 'b'"),
    ],
)
def test_a_wrong_request_is_refused(serves, streamer, query, status, complaint):
    answer = serves(streamer, TOKEN).post(f"/trace{query}", None, BEARER)
    assert answer.status == status
    assert complaint in answer.json["error"]


def test_a_streamer_that_is_recorded_is_refused(serves, streamer, tmp_path):
    with streamer.record(tmp_path / "trace.json"):
        answer = serves(streamer, TOKEN).post("/trace?seconds=1", None, BEARER)
    assert answer.status == 409
    assert "already" in answer.json["error"]


def test_a_recording_ends_when_its_client_has_gone(streamer, tmp_path):
    headers = {"Content-Type": "application/json", **BEARER}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/trace",
        "query_string": b"seconds=60",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }
    messages = [{"type": "http.request"}, {"type": "http.disconnect"}]
    sent = []

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message)

    async def ask():
        await asyncio.wait_for(web.create_app(streamer, TOKEN)(scope, receive, send), LONG)

    asyncio.run(ask())
    assert sent[0]["status"] == 200
    with streamer.record(tmp_path / "trace.json"):  # it is not being recorded any more
        pass
