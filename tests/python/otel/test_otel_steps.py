"""The process_spans of items that a step model works on."""

import os

import pytest
from step_models import Choosy, Countdown
from waits import LONG

pytest.importorskip("opentelemetry.sdk")

from service_streamer import otel

pytest_plugins = ["otel_fixtures", "step_fixtures"]


def test_each_item_has_one_span_with_the_number_of_its_steps(step_streamers, process_spans):
    streamer = step_streamers(Countdown())
    with otel.instrument(streamer, "counter"):
        assert streamer.predict([3, 1]) == [[3, 2, 1], [1]]
    request = process_spans.one("predict counter")
    short, long = process_spans.named("steps Countdown", 2)
    assert (short["steps"], short["outputs"]) == (1, 1)
    assert (long["steps"], long["outputs"]) == (3, 3)
    assert short.parent == long.parent == request.id
    assert [link for link, _ in long.links] == [request.id]
    assert long["worker_pid"] == os.getpid()
    assert long.events == ["first output"]
    assert long.start <= long.end


def test_a_worker_process_makes_the_span_of_a_stream(process_streamers, process_spans):
    streamer = process_streamers(Countdown, 4)
    with otel.instrument(streamer):
        assert list(streamer.stream(5, timeout=LONG)) == [5, 4, 3, 2, 1]
    steps = process_spans.one("steps Countdown")
    assert (steps["steps"], steps["outputs"], steps.events) == (5, 5, ["first output"])
    assert steps.parent == process_spans.one("predict").id
    assert steps.pid == steps["worker_pid"] != os.getpid()


def test_an_item_that_fails_has_its_error(step_streamers, process_spans):
    streamer = step_streamers(Choosy(bad_to_step=[2]))
    with otel.instrument(streamer), pytest.raises(ValueError, match="step"):
        streamer.predict([2])
    steps = process_spans.one("steps Choosy")
    assert (steps.error, steps.exceptions) == ("ValueError: step", ["ValueError"])
    assert (steps["steps"], steps["outputs"], steps.events) == (1, 0, [])


def test_without_a_trace_there_is_no_span(step_streamers, process_spans):
    streamer = step_streamers(Countdown())
    assert streamer.predict([2]) == [[2, 1]]
    with otel.instrument(streamer):
        streamer.predict([1])
    assert process_spans.one("steps ")["steps"] == 1
