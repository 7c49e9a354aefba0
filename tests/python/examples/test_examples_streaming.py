"""The example of streaming: the words of a line come one by one, and a client may leave."""

import json
import sys
from pathlib import Path

import httpx
import pytest
import web_services
from waits import eventually

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[3] / "examples" / "streaming"
sys.path.insert(0, str(FOLDER))

import words  # noqa: E402

LONG = web_services.LONG


@pytest.fixture
def url(port):
    with web_services.running(FOLDER, "-m", "uvicorn", "--port", str(port), "events_app:app"):
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: is_ready(url), LONG)
        yield url


def is_ready(url):
    try:
        return httpx.get(f"{url}/streamer/ready").status_code == 200
    except httpx.TransportError:
        return False


def test_the_service_sends_the_words_of_the_model(url):
    expected = [word for (word,) in words.Words(step=0).generate(["Jack and"])]
    text = httpx.get(f"{url}/words", params={"line": "Jack and"}, timeout=LONG).text
    *data, end = text.removesuffix("\n\n").split("\n\n")
    assert [json.loads(each.removeprefix("data: ")) for each in data] == expected
    assert end == "event: end\ndata:"
    assert "EventSource" in httpx.get(url).text


def test_a_client_that_disconnects_cancels_its_stream(url):
    with httpx.stream("GET", f"{url}/words", params={"line": "the"}, timeout=LONG) as response:
        assert next(response.iter_lines()).startswith("data: ")
    eventually(lambda: statistics(url)["cancelled"] == 1, LONG)


def statistics(url):
    (streamer,) = httpx.get(f"{url}/streamer/stats").json()["streamers"].values()
    return streamer["stats"]
