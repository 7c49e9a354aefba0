"""The example with Prometheus and Grafana: its files fit together and use metrics that exist."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from waits import eventually
from web_services import LONG, answers, ask, running

pytest.importorskip("prometheus_client")

from service_streamer._statistics.stats import OUTCOMES
from service_streamer.metrics import _families

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "examples" / "monitoring"
APPLICATION = ROOT / "examples" / "text_infilling"
LABELS = {"job", "instance", "streamer", "le"}


def read_yaml(name):
    return yaml.safe_load((FOLDER / name).read_text())


def rules():
    (group,) = read_yaml("alerts.yml")["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def dashboard():
    return json.loads((FOLDER / "dashboard.json").read_text())


def charts():
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def chart_expressions():
    return [target["expr"] for chart in charts() for target in chart["targets"]]


def expressions():
    return [*chart_expressions(), *(rule["expr"] for rule in rules().values())]


# --------------------------------------------------------------------- metrics


def exported():
    """The labels of each sample, by its name, without `streamer`."""
    labels = {f"service_streamer_{each.name}_total": each.labels for each in _families.COUNTERS}
    for each in (*_families._GAUGES, _families._UP):
        labels[f"service_streamer_{each.name}"] = each.labels
    for each in _families._HISTOGRAMS:
        for suffix in ("bucket", "sum", "count"):
            labels[f"service_streamer_{each.name}_{suffix}"] = ()
    return {name: set(each) for name, each in labels.items()}


def used(expression):
    return set(re.findall(r"\bservice_streamer_\w+", expression))


def test_every_metric_exists():
    for expression in expressions():
        assert used(expression) <= exported().keys()
        assert used(expression) or re.match(r"up\{", expression)


def test_every_family_is_on_the_dashboard():
    known = {re.sub("_(bucket|sum|count)$", "", name) for name in exported()}
    shown = {name for expression in chart_expressions() for name in used(expression)}
    assert known == {re.sub("_(bucket|sum|count)$", "", name) for name in shown}


def test_every_label_exists():
    for expression in expressions():
        known = LABELS.union(*(exported()[name] for name in used(expression)))
        lists = re.findall(r"(?:by|without) \(([\w, ]+)\)", expression)
        labels = {label for each in lists for label in each.split(", ")}
        labels.update(re.findall(r"(\w+)=~?\"", expression))
        assert labels <= known
        for outcomes in re.findall(r'outcome=~?"([^"]+)"', expression):
            assert set(outcomes.split("|")) <= set(OUTCOMES)
    for chart in charts():
        for target in chart["targets"]:
            labels = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            (by,) = set(re.findall(r"by \(([\w, ]+)\)", target["expr"]))
            assert labels == set(by.split(", ")) - {"le"}


# -------------------------------------------------------------------- promtool


@pytest.fixture
def promtool():
    path = shutil.which("promtool")
    if path is None:
        pytest.skip("no promtool")

    def run(*arguments):
        done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=LONG)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


def test_promtool_has_no_complaint(promtool, tmp_path):
    promtool("check", "config", str(FOLDER / "prometheus.yml"))
    promtool("check", "rules", str(FOLDER / "alerts.yml"))
    texts = [each.replace("$__rate_interval", "1m") for each in chart_expressions()]
    records = [{"record": f"chart:{n}", "expr": text} for n, text in enumerate(texts)]
    path = tmp_path / "charts.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "charts", "rules": records}]}))
    promtool("check", "rules", str(path))


def series(name, values, **labels):
    labels = {"job": "service-streamer", "instance": "a:1", "streamer": "s", **labels}
    text = ", ".join(f'{label}="{value}"' for label, value in labels.items())
    return {f"{name}{{{text}}}": values}


def metric(name, values, **labels):
    return series(f"service_streamer_{name}", values, **labels)


HEALTHY = {
    **series("up", "1x40"),
    **metric("up", "1x40"),
    **metric("requests_total", "0+97x40", outcome="completed"),
    **metric("requests_total", "0+3x40", outcome="failed"),
    **metric("requests_submitted_total", "0+100x40"),
    **metric("queued_requests", "5x40"),
    **metric("running_batches", "1x40"),
    **metric("queue_time_seconds_bucket", "0+100x40", le="0.1"),
    **metric("queue_time_seconds_bucket", "0+100x40", le="5"),
    **metric("queue_time_seconds_bucket", "0+100x40", le="+Inf"),
    **metric("queued_items", "50x40"),
    **metric("max_queue_items", "100x40"),
    **metric("stream_entries", "200x40"),
    **metric("stream_shards", "4x40"),
    **metric("stream_oldest_waiting_seconds", "1x40"),
    **metric("workers", "1x40", state="ready", device="0"),
    **metric("workers", "1x40", state="ready", device="1"),
    **metric("configured_workers", "2x40"),
    **metric("worker_restarts_total", "0x20 1x20"),
}
NONE_COMPLETES = metric("requests_total", "0x40", outcome="completed")
ALERTS = [
    ("NotScraped", series("up", "0x40")),
    ("Down", metric("up", "0x40")),
    ("NothingCompletes", NONE_COMPLETES),
    # every caller waits for its answer, so nothing new is submitted
    ("NothingCompletes", NONE_COMPLETES | metric("requests_submitted_total", "0x40")),
    ("Errors", metric("requests_total", "0+10x40", outcome="rejected")),
    ("QueueTimeHigh", metric("queue_time_seconds_bucket", "0+98x40", le="0.1")),
    ("QueueFull", metric("queued_items", "90x40")),
    ("QueueFull", metric("stream_entries", "360x40")),
    ("WorkersMissing", metric("workers", "_x40", state="ready", device="1")),
    (
        "WorkersMissing",
        metric("workers", "_x40", state="ready", device="0")
        | metric("workers", "_x40", state="ready", device="1")
        | metric("workers", "2x40", state="starting"),
    ),
    ("WorkersRestart", metric("worker_restarts_total", "0+1x40")),
    ("RedisQueueOld", metric("stream_oldest_waiting_seconds", "60x40")),
]


def firing_test(changes, alert):
    values = HEALTHY | changes
    check = {"expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "eval_time": "30m"}
    check["exp_samples"] = []
    if alert is not None:
        labels = f'{{alertname="ServiceStreamer{alert}"}}'
        check["exp_samples"] = [{"labels": labels, "value": 1}]
    inputs = [{"series": name, "values": text} for name, text in values.items()]
    return {"interval": "1m", "input_series": inputs, "promql_expr_test": [check]}


def test_each_alert_fires_for_its_reason_only(promtool, tmp_path):
    assert {f"ServiceStreamer{alert}" for alert, _ in ALERTS} == rules().keys()
    idle = NONE_COMPLETES | metric("requests_submitted_total", "0x40")
    idle |= metric("queued_requests", "0x40") | metric("running_batches", "0x40")
    idle |= metric("requests_total", "0x40", outcome="failed")
    cases = [(None, {}), (None, idle), *ALERTS]
    tests = []
    for alert, changes in cases:
        if alert == "NothingCompletes":  # and then no request fails either
            changes = changes | metric("requests_total", "0x40", outcome="failed")
        tests.append(firing_test(changes, alert))
    path = tmp_path / "alerts_test.yml"
    document = {"rule_files": [str(FOLDER / "alerts.yml")], "tests": tests}
    path.write_text(yaml.safe_dump(document))
    promtool("test", "rules", str(path))


def test_the_readme_lists_the_alerts():
    text = (FOLDER / "README.md").read_text()
    listed = re.findall(r"^\| `(ServiceStreamer\w+)` \|", text, re.MULTILINE)
    assert set(listed) == rules().keys()


# ------------------------------------------------------------------- dashboard


def test_every_data_source_is_the_variable_of_the_dashboard():
    document = dashboard()
    variables = {each["name"]: each for each in document["templating"]["list"]}
    (source,) = read_yaml("grafana/datasources/prometheus.yml")["datasources"]
    assert variables["datasource"]["query"] == source["type"]
    expected = {"type": source["type"], "uid": "${datasource}"}
    asked = [variables["streamer"], *charts(), *(t for chart in charts() for t in chart["targets"])]
    assert all(each["datasource"] == expected for each in asked)
    for chart in charts():
        names = [target["refId"] for target in chart["targets"]]
        assert len(names) == len(set(names)) > 0
    for expression in chart_expressions():
        found = set(re.findall(r"\$(\w+)", expression)) - {"__rate_interval"}
        assert found <= variables.keys()


# --------------------------------------------------------------------- compose


def test_the_containers_find_their_files_and_each_other():
    document = read_yaml("docker-compose.yml")
    services = document["services"]
    inside = {}
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= services.keys()
        image, _, version = service["image"].partition(":")
        assert image == "service-streamer-example" or re.fullmatch(r"v?\d+\.\d+\.\d+", version)
        for volume in service.get("volumes", ()):
            source, target, *_ = volume.split(":")
            if source not in document["volumes"]:
                assert (FOLDER / source).exists()
                inside[name, target] = FOLDER / source
    build = services["app"]["build"]
    assert "web,metrics,demo]" in (FOLDER / build["context"] / build["dockerfile"]).read_text()

    (job,) = read_yaml("prometheus.yml")["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    assert target.split(":") == ["app", services["app"]["command"][4]]
    assert f'job="{job["job_name"]}"' in rules()["ServiceStreamerNotScraped"]["expr"]
    for file in read_yaml("prometheus.yml")["rule_files"]:
        assert inside["prometheus", f"/etc/prometheus/{file}"] == FOLDER / file
    (source,) = read_yaml("grafana/datasources/prometheus.yml")["datasources"]
    assert source["url"].split("/")[-1].split(":")[0] in services
    (provider,) = read_yaml("grafana/dashboards/service-streamer.yml")["providers"]
    path = f"{provider['options']['path']}/dashboard.json"
    assert inside["grafana", path] == FOLDER / "dashboard.json"
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == path


@pytest.mark.slow
def test_the_application_has_the_metrics_and_the_load_reaches_it(port):
    (job,) = read_yaml("prometheus.yml")["scrape_configs"]
    command = read_yaml("docker-compose.yml")["services"]["app"]["command"]
    changed = {"0.0.0.0": "127.0.0.1", "5005": str(port)}
    words = [changed.get(word, word) for word in command]

    def completed():
        text = ask(port, job["metrics_path"]).text
        (value,) = re.findall(r'requests_total{outcome="completed",.*} (\S+)', text)
        return float(value)

    with running(APPLICATION, "-m", *words):
        eventually(lambda: answers(port), LONG)
        before = completed()
        with running(FOLDER, "load.py", f"http://127.0.0.1:{port}"):
            eventually(lambda: completed() > before + 5, LONG)
