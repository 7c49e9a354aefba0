"""Spans of the batches of a NativeModel."""

import pytest
from waits import LONG

pytest.importorskip("opentelemetry.sdk")

from service_streamer import otel

pytest_plugins = ["native_fixtures", "otel_fixtures"]
pytestmark = [pytest.mark.torch, pytest.mark.in_process]


def test_a_batch_has_a_span_with_links_to_its_requests(torch, served, spans):
    streamer = served(streamer={"policy": "window", "max_latency": LONG}, batch_size=3)
    with otel.instrument(streamer, "native"):
        futures = [streamer.submit([torch.zeros(3)] * count) for count in (1, 2)]
        for future in futures:
            future.result(LONG)
    first, second = spans.named("predict", 2)
    batch = spans.one("batch native")
    assert {link for link, _ in batch.links} == {first.id, second.id}
    assert batch.parent == batch.links[0][0]
    assert [attributes["service_streamer.items"] for _, attributes in batch.links] == [1, 2]
    assert (batch["items"], batch["requests"], batch["close_reason"]) == (3, 2, "full")
    assert batch.error is None
    assert batch.start <= batch.end


def test_a_batch_that_fails_has_the_error(torch, served, spans):
    streamer = served("Picky")
    with otel.instrument(streamer), pytest.raises(RuntimeError):
        streamer.predict([torch.full((3,), 13.0)])
    assert "13 is bad luck" in spans.one("batch ").error
    assert "13 is bad luck" in spans.one("predict").error
