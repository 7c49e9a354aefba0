"""The manifests that scale the workers of examples/redis fit together."""

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

from service_streamer._redis.gateway import shard_link
from service_streamer._redis.keys import Keys
from service_streamer._statistics.measurements import Family
from service_streamer.metrics import _families

yaml = pytest.importorskip("yaml")

FOLDER = Path(__file__).parents[3] / "examples" / "redis"


def documents(name):
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def named(kind, name):
    (found,) = [
        each
        for each in documents("kubernetes.yaml")
        if (each["kind"], each["metadata"]["name"]) == (kind, name)
    ]
    return found


def container(name):
    (found,) = named("Deployment", name)["spec"]["template"]["spec"]["containers"]
    return found


def argument(name):
    (found,) = [each for each in container("text-infilling-worker")["args"] if f"--{name}=" in each]
    return found.partition("=")[2]


def grace(name):
    return named("Deployment", name)["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]


@pytest.fixture
def scaled():
    (document,) = documents("keda.yaml")
    return document


@pytest.fixture
def hpa():
    (document,) = documents("hpa.yaml")
    return document


@pytest.fixture
def adapter():
    (document,) = documents("prometheus-adapter.yaml")
    return document["rules"]["external"]


def test_both_autoscalers_have_the_same_rule_for_the_same_deployment(scaled, hpa):
    spec = scaled["spec"]
    assert named("Deployment", spec["scaleTargetRef"]["name"])
    assert hpa["spec"]["scaleTargetRef"]["name"] == spec["scaleTargetRef"]["name"]
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert hpa["spec"]["behavior"] == behavior
    assert hpa["spec"]["maxReplicas"] == spec["maxReplicaCount"]
    targets = [each["external"]["target"]["averageValue"] for each in hpa["spec"]["metrics"]]
    assert targets == [trigger["metadata"]["streamLength"] for trigger in spec["triggers"]]
    assert "replicas" not in named("Deployment", spec["scaleTargetRef"]["name"])["spec"]
    assert spec["fallback"]["replicas"] <= spec["maxReplicaCount"]


def test_the_triggers_read_both_streams_of_the_queue(scaled):
    main, bulk = (trigger["metadata"] for trigger in scaled["spec"]["triggers"])
    keys = Keys(argument("prefix"))
    streams = [each["stream"].encode() for each in (main, bulk)]
    assert streams == [stream.key for stream in keys.streams]
    assert int(main["streamLength"]) == int(argument("batch-size")) / 2
    for each in (main, bulk):
        host, _, port = each["address"].partition(":")
        service, namespace, domain = host.split(".")
        (open_port,) = named("Service", service)["spec"]["ports"]
        assert (namespace, domain, int(port)) == ("default", "svc", open_port["port"])
        secrets = [
            variable["name"]
            for variable in container("text-infilling-worker")["env"]
            if "valueFrom" in variable
        ]
        assert each["passwordFromEnv"] in secrets


def test_a_web_pod_is_ready_while_there_is_no_worker(scaled):
    """Otherwise no request could come in, for which a worker is started."""
    assert scaled["spec"]["minReplicaCount"] == 0
    assert {"name": "SCALE_TO_ZERO", "value": "1"} in container("text-infilling-web")["env"]


def test_the_adapter_makes_the_metrics_from_what_web_pods_export(hpa, adapter):
    metrics = [each["external"]["metric"] for each in hpa["spec"]["metrics"]]
    assert [each["name"] for each in metrics] == [rule["name"]["as"] for rule in adapter]
    (label,) = {each["selector"]["matchLabels"]["streamer"] for each in metrics}
    assert f'"{label}": streamer' in (FOLDER / "app.py").read_text()
    exported = {
        f"service_streamer_{each.name}" for each in _families._GAUGES if isinstance(each, Family)
    }
    for rule in adapter:
        for text in (rule["seriesQuery"], rule["metricsQuery"]):
            used = re.findall(r"service_streamer_\w+", text)
            assert used
            assert set(used) <= exported
    annotations = named("Deployment", "text-infilling-web")["spec"]["template"]["metadata"][
        "annotations"
    ]
    port = container("text-infilling-web")["ports"][0]["containerPort"]
    assert annotations == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(port),
        "prometheus.io/path": "/streamer/metrics",
    }


def test_pods_have_the_time_to_end(monkeypatch):
    # fetchers, replier and lease keeper end after what was fetched is answered or released
    leaving = 3 * shard_link.CLOSE_PATIENCE
    assert grace("text-infilling-worker") >= float(argument("drain-timeout")) + leaving
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, "gunicorn_conf", raising=False)
    import gunicorn_conf

    monkeypatch.delitem(sys.modules, "gunicorn_conf")
    (_, pause) = container("text-infilling-web")["lifecycle"]["preStop"]["exec"]["command"]
    assert grace("text-infilling-web") > int(pause) + gunicorn_conf.graceful_timeout


def test_a_drained_node_takes_one_pod_of_each_kind_at_a_time():
    budgets = [
        each["spec"]
        for each in documents("kubernetes.yaml")
        if each["kind"] == "PodDisruptionBudget"
    ]
    for spec in budgets:
        labels = spec["selector"]["matchLabels"]
        assert labels == named("Deployment", labels["app"])["spec"]["selector"]["matchLabels"]
        # minAvailable would keep the node of an only worker for ever
        assert (spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    assert len(budgets) == 2
