"""Pages, metrics, traces and timelines show a pipeline, and its stages as streamers."""

import gc
import json
import weakref

import pytest
from process_models import echo
from thread_models import double
from waits import eventually

from service_streamer import Pipeline, Stage


def test_a_page_shows_a_pipeline_and_its_stages(pipelines):
    testclient = pytest.importorskip("starlette.testclient")
    from service_streamer import web

    pipeline = pipelines(Stage(echo, name="decode"), double)
    for _ in range(20):
        pipeline.predict([1, 2])
    app = web.create_app({"all": pipeline, **pipeline.stages})
    client = testclient.TestClient(app)
    assert client.get("/ready").status_code == 200
    shown = client.get("/stats").json()["streamers"]
    assert list(shown) == ["all", "decode", "double"]
    assert shown["all"]["kind"] == "Pipeline"
    assert shown["all"]["verdict"].startswith("The load is the limit: no stage")
    assert shown["all"]["stats"]["stages"]["decode"]["items"] == 40


def test_metrics_of_a_pipeline_and_its_stages(pipelines):
    prometheus = pytest.importorskip("prometheus_client")
    from service_streamer import metrics

    pipeline = pipelines(Stage(echo, name="decode"), double)
    registry = prometheus.CollectorRegistry()
    metrics.register(pipeline, "all", registry)
    for name, streamer in pipeline.stages.items():
        metrics.register(streamer, name, registry)
    pipeline.predict([1, 2])
    for name, items in (("all", 2), ("decode", 2), ("double", 2)):
        assert (
            registry.get_sample_value("service_streamer_items_total", {"streamer": name}) == items
        )
    workers = "service_streamer_configured_workers"
    assert registry.get_sample_value(workers, {"streamer": "decode"}) == 1
    assert registry.get_sample_value(workers, {"streamer": "all"}) is None


def test_a_notebook_shows_which_stage_limits(pipelines):
    pipeline = pipelines(echo, double)
    for _ in range(20):
        pipeline.predict([1, 2])
    for shown in (pipeline, pipeline.explain()):
        assert "The load is the limit: no stage" in shown._repr_html_()
    for shown in (pipeline, pipeline.stats()):
        html = shown._repr_html_()
        assert all(f">{text}</td>" in html for text in ("echo", "double"))
        assert "in the stages" in html


def test_a_report_in_a_notebook_does_not_keep_the_streamers():
    pipeline = Pipeline(echo)
    pipeline.predict([1])
    report, reference = pipeline.explain(), weakref.ref(pipeline.stages["echo"])
    del pipeline
    gc.collect()
    eventually(lambda: reference() is None)
    assert "echo" in report._repr_html_()


def test_a_timeline_of_a_pipeline(pipelines, tmp_path):
    pipeline = pipelines(echo, double)
    with pipeline.record(tmp_path / "trace.json"):
        pipeline.predict([1])
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
