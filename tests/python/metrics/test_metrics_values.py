"""The exported metrics: their values are those of `stats()`, and the text is well-formed."""

import math
import re
from pathlib import Path

import pytest
from waits import LONG, eventually

pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics import exposition, parser
from scrapes import check_with_promtool, scrape

import service_streamer
from service_streamer import metrics

PAGE = Path(__file__).parents[3] / "docs/guide/monitoring/metrics.md"


@pytest.fixture
def registry():
    return CollectorRegistry()


OUTCOMES = ("completed", "failed", "cancelled", "expired", "rejected", "dropped")
GAUGES = ("queued_items", "queued_requests", "waiting_requests", "running_batches", "running_items")


def check_against_stats(found, stats, name="one"):
    """Whether a scrape has the numbers that `stats()` had at that time."""
    for outcome in OUTCOMES:
        assert found.requests(name, outcome) == getattr(stats, outcome)
    for counter in ("items", "batches", "worker_restarts"):
        assert found(f"{counter}_total", streamer=name) == getattr(stats, counter)
    assert found("requests_submitted_total", streamer=name) == stats.submitted
    assert found("requests_isolated_total", streamer=name) == stats.isolated
    assert found("batches_out_of_memory_total", streamer=name) == stats.out_of_memory
    for gauge in GAUGES:
        assert found(gauge, streamer=name) == getattr(stats, gauge)
    assert found("max_queue_items", streamer=name) == stats.max_queue
    assert found("configured_workers", streamer=name) == stats.workers
    assert found("idle_workers", streamer=name) == stats.idle_workers
    for reason, count in stats.close_reasons.items():
        assert found("batches_closed_total", streamer=name, reason=reason) == count
    for time in ("queue_time", "service_time", "delivery_time"):
        check_times(found, name, f"{time}_seconds", getattr(stats, time))
    check_sizes(found, name, stats)


def buckets(found, name, histogram):
    return {
        float(dict(labels)["le"]): value
        for (sample, labels), value in found.samples.items()
        if sample == f"service_streamer_{histogram}_bucket" and ("streamer", name) in labels
    }


def check_times(found, name, histogram, summary):
    assert found(f"{histogram}_count", streamer=name) == summary.count
    assert found(f"{histogram}_sum", streamer=name) == pytest.approx(summary.total)
    exported = buckets(found, name, histogram)
    assert len(exported) == 25
    assert (min(exported), sorted(exported)[-2:]) == (0.0001, [60.0, math.inf])
    for bound, count in exported.items():
        # never more than there are
        assert count == sum(n for upper, n in summary.buckets.items() if upper <= bound)


def check_sizes(found, name, stats):
    exported = buckets(found, name, "batch_size")
    assert sorted(exported)[:-1] == [2.0**i for i in range(len(exported) - 1)]
    assert sorted(exported)[-2] >= stats.batch_size
    for bound, count in exported.items():
        assert count == sum(n for size, n in stats.batch_sizes.items() if size <= bound)
    assert found("batch_size_sum", streamer=name) == stats.items
    assert found("batch_size_count", streamer=name) == stats.batches


@pytest.mark.not_redis
def test_values_are_those_of_stats(streamers, registry, threads):
    streamer = streamers(lambda batch: [1 // item for item in batch], 6, max_queue=64)
    metrics.register(streamer, "one", registry)
    for _ in range(8):
        threads.run(lambda: [streamer.submit([1] * n).result() for n in (1, 2, 5, 9)])
    threads.join()
    with pytest.raises(ZeroDivisionError):
        streamer.predict([0])
    eventually(lambda: streamer.stats().idle_workers == 1)
    check_against_stats(scrape(registry), streamer.stats())


def test_values_under_load_are_between_those_of_stats(streamers, registry, threads):
    streamer = streamers()
    metrics.register(streamer, "one", registry)
    for _ in range(4):
        threads.run(lambda: [streamer.predict([1, 2]) for _ in range(300)])
    last = scrape(registry)
    while last.requests("one") < 1200:
        before = streamer.stats().completed
        found = scrape(registry)
        assert before <= found.requests("one") <= streamer.stats().completed
        found.check_not_before(last)
        last = found
    threads.join()


@pytest.mark.not_redis
def test_a_held_batch_and_a_full_queue_are_seen(held, registry, gate):
    streamer = held(2, max_queue=4, overflow="reject")
    metrics.register(streamer, "one", registry)
    rest = [streamer.submit([1, 2]) for _ in range(2)]
    with pytest.raises(service_streamer.QueueFull):
        streamer.submit([1])
    found = scrape(registry)
    assert [found(gauge, streamer="one") for gauge in GAUGES] == [4, 2, 0, 1, 1]
    assert found.requests("one", "rejected") == 1
    gate.open()
    assert [each.result() for each in rest]
    eventually(lambda: scrape(registry)("idle_workers", streamer="one") == 1)


def test_worker_processes_are_counted_by_state_and_device(process_streamers, registry):
    streamer = process_streamers(worker_num=3, cuda_devices=(0, 1, 0))
    metrics.register(streamer, "one", registry)
    streamer.wait_ready()
    found = scrape(registry)
    devices = [
        found("workers", streamer="one", state="ready", device=device) for device in ("0", "1")
    ]
    assert (devices, found("configured_workers", streamer="one")) == ([2, 1], 3)


@pytest.mark.not_redis
def test_tenants_with_a_share_of_their_own_are_counted_and_all_others_together(
    held, registry, gate
):
    shares = {"acme": 3, "quiet": 1, "*": 1}
    streamer = held(1, tenants=shares, max_queue_per_tenant=2, overflow="reject")
    metrics.register(streamer, "one", registry)
    streamer.submit([1, 1], tenant="acme")
    with pytest.raises(service_streamer.QueueFull):
        streamer.submit([1], tenant="acme")
    for number in range(300):
        streamer.submit([1], tenant=f"other {number}")
    assert streamer.submit([1], tenant="other 7").cancel()

    def queued(tenant):
        return scrape(registry)("tenant_queued_items", streamer="one", tenant=tenant)

    def requests(tenant, outcome):
        labels = {"streamer": "one", "tenant": tenant, "outcome": outcome}
        return scrape(registry)("tenant_requests_total", **labels)

    assert [queued(tenant) for tenant in ("acme", "quiet", "*")] == [2, 0, 300]
    assert queued("other 7") is None
    assert (requests("acme", "rejected"), requests("*", "cancelled")) == (1, 1)
    gate.open()
    eventually(lambda: requests("*", "completed") == 301)  # with the first one, of no tenant
    eventually(lambda: requests("acme", "completed") == 1)


# ---------------------------------------------------------------------------- format


def test_the_text_is_well_formed(streamers, registry):
    for name in ('quoted "one"\\', "späte Züge"):
        streamer = streamers()
        metrics.register(streamer, name, registry)
        streamer.predict([1, 2, 3])
    found = scrape(registry)
    names = [family.name for family in found.families]
    assert len(names) == len(set(names))
    for family in found.families:
        assert family.name.startswith("service_streamer_")
        assert family.documentation.endswith(".")
        assert not family.samples or {"streamer"} <= family.samples[0].labels.keys()
    assert found.requests('quoted "one"\\') == found.requests("späte Züge") == 1

    text = exposition.generate_latest(registry).decode()
    open_metrics = {family.name for family in parser.text_string_to_metric_families(text)}
    assert open_metrics == {name.removesuffix("_total") for name in names}


def test_the_page_lists_all_metrics(streamers, registry):
    metrics.register(streamers(), "one", registry)
    page = PAGE.read_text()
    listed = re.findall(r"`(service_streamer_\w+)`", page)
    families = scrape(registry).families
    counters = {family.name for family in families if family.type == "counter"}
    names = [each.removesuffix("_total") for each in listed]
    assert sorted(names) == sorted(family.name for family in families)
    assert {each.removesuffix("_total") for each in listed if each.endswith("_total")} == counters


def test_promtool_has_no_complaint(streamers, registry):
    streamer = streamers()
    # A worker that is forked while the pipe of promtool is open would inherit it.
    streamer.wait_ready(LONG)
    metrics.register(streamer, "one", registry)
    check_with_promtool(scrape(registry).text)


def test_a_part_of_the_registry_can_be_scraped(streamers, registry):
    metrics.register(streamers(), "one", registry)
    part = scrape(registry.restricted_registry(["service_streamer_up"]))
    assert [family.name for family in part.families] == ["service_streamer_up"]
