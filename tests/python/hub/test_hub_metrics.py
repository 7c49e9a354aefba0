"""metrics.register(hub): a series for each model and version, while models come and go."""

import gc
import weakref

import pytest
from thread_models import double
from waits import LONG, eventually

pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry
from scrapes import check_with_promtool, scrape

from service_streamer import StreamerClosed, ThreadedStreamer, metrics
from service_streamer.hub import ModelHub, ModelLoadError, ModelSpec
from service_streamer.metrics import _hub

pytest_plugins = ["metrics_fixtures"]

STATES = ("unloaded", "loading", "ready", "draining", "failed")


@pytest.fixture
def registry():
    return CollectorRegistry()


def labels(model, version=1, hub="hub"):
    return {"streamer": hub, "model": model, "version": str(version)}


def state(found, model, version=1):
    of = labels(model, version)
    (name,) = (each for each in STATES if found("model_state", state=each, **of) == 1)
    assert sum(found("model_state", state=each, **of) for each in STATES) == 1
    return name


def completed(found, model, version=1):
    return found("requests_total", outcome="completed", **labels(model, version))


def test_a_model_and_its_streamer_are_exported_by_name_and_version(hubs, factories, registry):
    factory = factories()
    hub = hubs({"double": ModelSpec(double, batch_size=8), "slow": factory})
    metrics.register(hub, registry=registry)
    found = scrape(registry)
    assert (state(found, "double"), completed(found, "double")) == ("unloaded", None)
    assert found("model_last_use_timestamp_seconds", **labels("double")) is None
    assert found("up", **labels("double")) == 1
    hub.predict("double", [1])
    factory.gate.clear()
    waiting = hub.submit("slow", [1])
    factory.wait_entered()
    found = scrape(registry)
    assert (state(found, "double"), state(found, "slow")) == ("ready", "loading")
    assert completed(found, "double") == 1
    assert found("model_waiting_requests", **labels("slow")) == 1
    assert found("model_loads_total", **labels("double")) == 1
    assert found("model_load_seconds", **labels("double")) > 0
    assert found("model_last_use_timestamp_seconds", **labels("double")) > 1e9
    assert found("model_memory_bytes", **labels("double")) is not None
    assert found("model_serving", **labels("double")) == 1
    factory.gate.set()
    assert waiting.result(LONG) == [2]


@pytest.mark.parametrize("shared", [False, True])
def test_counters_do_not_go_back_when_a_model_is_unloaded_and_loaded_again(hubs, registry, shared):
    hub = hubs({"double": ModelSpec(double, batch_size=8, processes=shared)}, workers=1)
    metrics.register(hub, registry=registry)
    last = scrape(registry)
    for loads in range(1, 2 * _hub.KEPT):
        hub.predict("double", [1, 2])
        if loads % 3:  # else it comes and goes between two scrapes
            found = scrape(registry)
            found.check_not_before(last)
            assert completed(found, "double") == loads
            last = found
        hub.unload("double")
    found = scrape(registry)
    found.check_not_before(last)
    assert found("items_total", **labels("double")) == (None if shared else 2 * loads)
    assert found("model_loads_total", **labels("double")) == loads
    assert found("queued_items", **labels("double")) is None


def test_a_hub_that_nothing_scrapes_keeps_few_records(hubs, registry):
    hub = hubs({"double": ModelSpec(double, batch_size=8)})
    metrics.register(hub, registry=registry)
    (entry,) = (each for each in metrics._process.PROCESS._entries if each.source() is hub)
    rounds = 2 * _hub.MOST_ENDED + 1
    for _ in range(rounds):
        hub.predict("double", [1])
        hub.unload("double")
        assert len(entry._entries) <= _hub.MOST_ENDED + 2
    assert completed(scrape(registry), "double") == rounds


def test_a_failed_load_is_counted(hubs, factories, registry):
    factory = factories()
    factory.error = ValueError("no weights")
    hub = hubs({"model": factory})
    metrics.register(hub, registry=registry)
    with pytest.raises(ModelLoadError):
        hub.predict("model", [1])
    found = scrape(registry)
    assert state(found, "model") == "failed"
    assert found("model_load_failures_total", **labels("model")) == 1


def test_a_new_version_gets_series_of_its_own(watched, folder, registry, monkeypatch):
    folder.add(1)
    hub = watched()
    metrics.register(hub, "models", registry)
    hub.predict("times", [1])
    folder.add(2)
    eventually(lambda: hub.predict("times", [1]) == [2])
    eventually(lambda: 1 not in hub.status()["times"].versions)
    found = scrape(registry)
    assert completed(found, "times", 2) is None  # of another hub's name
    of = {version: labels("times", version, "models") for version in (1, 2)}
    assert found("requests_total", outcome="completed", **of[1]) >= 1
    assert found("model_serving", **of[2]) == 1
    assert found("model_state", state="ready", **of[1]) is None
    monkeypatch.setattr(_hub, "GONE", 0.0)
    scrape(registry)
    assert scrape(registry)("requests_total", outcome="completed", **of[1]) is None


def test_a_hub_beside_a_streamer(hubs, registry):
    hub = hubs({"double": ModelSpec(double, batch_size=8)})
    metrics.register(hub, registry=registry)
    hub.predict("double", [1])
    with ThreadedStreamer(double, 8) as streamer:
        with pytest.raises(ValueError, match="in use by another hub: <ModelHub double>"):
            metrics.register(streamer, "hub", registry)
        metrics.register(streamer, "double", registry)
        found = scrape(registry)
        assert (found.requests("double"), completed(found, "double")) == (0, 1)
    with pytest.raises(TypeError, match=r"not <ModelHandle 'double'>: register its hub"):
        metrics.register(hub["double"], "handle", registry)
    with pytest.raises(ValueError, match="<ModelHub double> is already registered, as 'hub'"):
        metrics.register(hub, "again", registry)
    hub.close()
    assert scrape(registry).text == ""
    with pytest.raises(StreamerClosed):
        metrics.register(hub, "closed", registry)


def test_a_forgotten_hub_leaves(registry):
    hub = ModelHub({"double": ModelSpec(double, batch_size=8)})
    metrics.register(hub, registry=registry)
    hub.predict("double", [1])
    gone = weakref.ref(hub)
    del hub
    eventually(lambda: gc.collect() is not None and gone() is None)
    # a thread of the hub may hold the streamer for a moment longer
    eventually(lambda: gc.collect() is not None and scrape(registry).text == "")


def test_promtool_accepts_the_metrics_of_a_hub(hubs, registry):
    hub = hubs({name: ModelSpec(double, batch_size=8) for name in ("one", "two")})
    metrics.register(hub, registry=registry)
    with ThreadedStreamer(double, 8) as streamer:
        metrics.register(streamer, "alone", registry)
        hub.predict("one", [1])
        check_with_promtool(scrape(registry).text)


def test_processes_of_a_directory_are_added_up(share):
    share(
        """
from service_streamer.hub import ModelHub, ModelSpec

LABELS = {"streamer": "hub", "model": "echo", "version": "1"}

def serve():
    global hub  # as an application keeps it
    hub = ModelHub({"echo": ModelSpec(predict, batch_size=8)})
    metrics.register(hub, registry=registry)
    for _ in range(2):
        hub.predict("echo", [1])
        hub.unload("echo")
    hub.predict("echo", [1])

def check(found, loads, ready):
    assert found("requests_total", outcome="completed", **LABELS) == loads, found.text
    assert found("model_loads_total", **LABELS) == loads, found.text
    assert found("model_state", state="ready", **LABELS) == ready, found.text
    assert found("model_last_use_timestamp_seconds", **LABELS) < 3e9, found.text

children = [Child(serve) for _ in range(2)]
serve()
first = scrape(registry)
check(first, 9, 3)
children[0].end()
second = scrape(registry)
check(second, 9, 2)
second.check_not_before(first)
children[1].end()
hub.unload("echo")
check(scrape(registry), 9, 0)
"""
    )


def test_a_hub_made_before_a_fork_is_counted_once(share):
    share(
        """
from service_streamer.hub import ModelHub, ModelSpec

LABELS = {"streamer": "hub", "model": "echo", "version": "1"}
hub = ModelHub({"echo": ModelSpec(predict, batch_size=8, processes=True, mp_start_method="fork")})
metrics.register(hub, registry=registry)
hub.predict("echo", [1])
children = [Child(lambda: hub.predict("echo", [1])) for _ in range(2)]
found = scrape(registry)
assert found("requests_total", outcome="completed", **LABELS) == 3, found.text
assert found("model_loads_total", **LABELS) == 1, found.text
assert found("model_state", state="ready", **LABELS) == 1, found.text
for each in children:
    each.end()
hub.close()
"""
    )
