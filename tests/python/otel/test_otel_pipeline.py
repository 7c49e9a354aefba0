"""Spans of pipelines."""

import pytest

pytest.importorskip("opentelemetry.sdk")

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
