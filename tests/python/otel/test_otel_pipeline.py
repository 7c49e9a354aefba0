"""Spans of pipelines."""

import pytest

otel = pytest.importorskip("service_streamer.otel")

from otel_fixtures import process_spans  # noqa: E402, F401 - a fixture
from thread_models import double  # noqa: E402

from service_streamer import Pipeline, Stage  # noqa: E402


@pytest.mark.parametrize("call", ["predict", "submit"])
def test_the_batches_of_all_stages_are_linked_to_the_request(process_spans, call):  # noqa: F811
    in_process = Stage(double, processes=True, mp_start_method="fork")
    with Pipeline(double, in_process) as pipeline, otel.instrument(pipeline, "pictures"):
        outputs = getattr(pipeline, call)([1])
        assert (outputs if call == "predict" else outputs.result()) == [4]
        request = process_spans.one("predict pictures")
        batches = process_spans.named("batch ", 2)
    assert [[link for link, _ in batch.links] for batch in batches] == [[request.id]] * 2
