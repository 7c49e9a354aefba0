"""Spans of pipelines."""

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import TracerProvider, sampling
from opentelemetry.trace import NoOpTracerProvider
from thread_models import double

from service_streamer import Pipeline, Stage, otel

pytest_plugins = ["otel_fixtures"]


@pytest.mark.parametrize("call", ["predict", "submit"])
def test_the_batches_of_all_stages_are_linked_to_the_request(process_spans, call):
    in_process = Stage(double, processes=True, mp_start_method="fork")
    with Pipeline(double, in_process) as pipeline, otel.instrument(pipeline, "pictures"):
        outputs = getattr(pipeline, call)([1])
        assert (outputs if call == "predict" else outputs.result()) == [4]
        request = process_spans.one("predict pictures")
        batches = process_spans.named("batch ", 2)
    assert [[link for link, _ in batch.links] for batch in batches] == [[request.id]] * 2


@pytest.mark.parametrize("call", ["predict", "submit"])
def test_the_span_of_a_request_has_its_items_and_no_batch(process_spans, call):
    with Pipeline(Stage(double, 4), double) as pipeline, otel.instrument(pipeline, "pictures"):
        outputs = getattr(pipeline, call)(list(range(10)))  # ten parts, in several batches
        assert len(outputs if call == "predict" else outputs.result()) == 10
        request = process_spans.one("predict pictures")
    assert request["items"] == 10
    assert request["service_time_seconds"] > 0
    assert "batch_items" not in request
    assert "close_reason" not in request


@pytest.mark.parametrize("provider", [NoOpTracerProvider(), TracerProvider(sampling.ALWAYS_OFF)])
def test_outputs_are_the_same_if_no_span_is_recorded(provider):
    with Pipeline(double) as pipeline, otel.instrument(pipeline, tracer_provider=provider):
        assert pipeline.predict([1, 2]) == [2, 4]
        assert pipeline.submit([1, 2]).result() == [2, 4]
