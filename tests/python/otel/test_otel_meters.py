"""The statistics of streamers as OpenTelemetry metrics."""

import gc

import pytest
from waits import LONG

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from service_streamer import RequestTimeout, ThreadedStreamer, otel
from service_streamer._statistics.measurements import COUNTERS, GAUGES, TIMES

pytest_plugins = ["peers"]


class Meters:
    """A meter provider and what it collects: values by name and attributes."""

    def __init__(self):
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider(metric_readers=[self._reader])

    def collect(self):
        data = self._reader.get_metrics_data()
        return {
            (metric.name.removeprefix("service_streamer."), *dict(point.attributes).values()): (
                point.value
            )
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        }


@pytest.fixture
def meters():
    made = Meters()
    yield made
    made.provider.shutdown()


def test_the_statistics_are_reported(held, gate, meters, backend):
    streamer = held(2)
    otel.instrument(streamer, "doubler", meter_provider=meters.provider)
    with pytest.raises(RequestTimeout):
        streamer.predict([1], timeout=0.01)
    queued = streamer.submit([1, 2, 3])
    values = meters.collect()
    assert values["requests", "doubler", "expired"] == 1
    assert values["requests", "doubler", "completed"] == 0
    gate.open()
    queued.result(LONG)
    streamer.first.result(LONG)
    values = meters.collect()
    assert values["requests", "doubler", "completed"] == 2
    assert values["queued_items", "doubler"] == 0
    stats = streamer.stats()
    assert values["items", "doubler"] == stats.items
    reasons = {key[2]: value for key, value in values.items() if key[0] == "batches_closed"}
    assert reasons == stats.close_reasons
    for quantile in (0.5, 0.99):
        assert values["delivery_time", "doubler", quantile] > 0
    if backend == "redis":
        assert values["broker_errors", "doubler"] == 0
    else:
        assert values["service_time", "doubler", 0.5] > 0
        assert values["worker_restarts", "doubler"] == 0
        assert sum(value for key, value in values.items() if key[0] == "workers") == 1


@pytest.mark.in_process
def test_every_family_is_an_instrument(streamers, meters):
    options = {"tenants": {"acme": 1, "*": 1}, "coalesce": True}
    streamer = streamers(weight=abs, max_queue_weight=64, **options)
    otel.instrument(streamer, "one", meter_provider=meters.provider)
    streamer.predict([1, 1])
    names = {each.name for each in (*COUNTERS, *GAUGES, *TIMES)}
    assert {key[0] for key in meters.collect()} == names - {"broker_errors"}


@pytest.mark.in_process
def test_streamers_of_a_provider_differ_in_their_names(streamers, meters):
    one, two = streamers(), streamers()
    otel.instrument(one, "one", meter_provider=meters.provider)
    with pytest.raises(ValueError, match=r"'one' is in use by another streamer: <Threaded"):
        otel.instrument(two, "one", meter_provider=meters.provider)
    otel.instrument(two, "two", meter_provider=meters.provider)
    one.predict([1])
    values = meters.collect()
    assert (values["items", "one"], values["items", "two"]) == (1, 0)


@pytest.mark.in_process
def test_a_streamer_that_has_ended_is_not_reported(streamers, meters):
    closed, undone = streamers(), streamers()
    for each, name in ((closed, "closed"), (undone, "undone")):
        instrumentation = otel.instrument(each, name, meter_provider=meters.provider)
        each.predict([1])
    deleted = ThreadedStreamer(list, 8)
    otel.instrument(deleted, "deleted", meter_provider=meters.provider)
    assert {key[1] for key in meters.collect()} == {"closed", "undone", "deleted"}
    closed.close()
    instrumentation.uninstrument()
    del deleted
    gc.collect()
    assert meters.collect() == {}
    again = streamers()
    otel.instrument(again, "closed", meter_provider=meters.provider)
    assert meters.collect()["items", "closed"] == 0


@pytest.mark.slow
def test_a_client_leaves_the_statistics_to_the_owner(process_streamers, clients, meters):
    streamer = process_streamers()
    client = clients(streamer.address)
    otel.instrument(client, "client", meter_provider=meters.provider)
    client.predict([1])
    assert meters.collect() == {}
    otel.instrument(streamer, "owner", meter_provider=meters.provider)
    assert meters.collect()["items", "owner"] == 1


@pytest.mark.in_process
def test_the_global_provider_may_be_set_later(child):
    child(
        """
        from opentelemetry import metrics
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from service_streamer import ThreadedStreamer, otel

        def items():
            (resource,) = reader.get_metrics_data().resource_metrics
            (scope,) = resource.scope_metrics
            (metric,) = [each for each in scope.metrics if each.name == "service_streamer.items"]
            return {each.attributes["streamer"]: each.value for each in metric.data.data_points}

        early, late = ThreadedStreamer(list, 8), ThreadedStreamer(list, 8)
        otel.instrument(early, "early")
        reader = InMemoryMetricReader()
        provider = MeterProvider(metric_readers=[reader])
        metrics.set_meter_provider(provider)
        otel.instrument(late, "late", meter_provider=provider)
        late.predict([1])
        assert items() == {"early": 0, "late": 1}
        """
    )
