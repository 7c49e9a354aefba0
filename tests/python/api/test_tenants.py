"""tenant: fair shares of the model and of the queue."""

import math
import os

import pytest
from waits import LONG, eventually

from service_streamer import (
    Pipeline,
    QueueFull,
    Stage,
    Streamer,
    ThreadedStreamer,
)


def tenants_in(batch):
    return [item.split("-")[0] for item in batch]


def test_the_items_of_a_batch_are_divided_by_the_shares(held, gate):
    streamer = held(batch_size=8, tenants={"large": 3, "*": 1})
    requests = [f"{name}-{i}" for i in range(8) for name in ("small", "large")]
    futures = [streamer.submit([item], tenant=item.split("-")[0]) for item in requests]
    gate.open()
    for future in futures:
        future.result(LONG)
    if len(gate.batches[1]) == 8:  # a Redis worker fetches only a part at once
        assert sorted(tenants_in(gate.batches[1])) == ["large"] * 6 + ["small"] * 2


@pytest.mark.not_redis
def test_a_tenant_with_a_full_part_of_the_queue_is_refused(held, gate):
    streamer = held(batch_size=1, max_queue_per_tenant=2, overflow="reject")
    queued = [streamer.submit([i], tenant="one") for i in range(2)]
    with pytest.raises(QueueFull, match=r"tenant 'one' \(max_queue_per_tenant=2\)") as caught:
        streamer.submit([2], tenant="one")
    assert caught.value.retry_after > 0
    queued += [streamer.submit([i], tenant="two") for i in range(2)]
    queued += [streamer.submit([i]) for i in range(2)]
    with pytest.raises(QueueFull, match="tenant ''"):
        streamer.submit([2])
    gate.open()
    assert [future.result(LONG) for future in queued] == [[0], [2]] * 3
    assert streamer.stats().rejected == 2


@pytest.mark.not_redis
def test_stats_and_explain_name_the_tenants_that_have_most_in_the_queue(held, gate):
    streamer = held(batch_size=1, max_queue_per_tenant=10)
    for name, items in (("one", 10), ("two", 3), (None, 10)):
        streamer.submit([1] * items, tenant=name)
    assert streamer.stats().tenants == {"one": 10, "two": 3}
    line = "part of the queue full (max_queue_per_tenant=10) of tenants 'one'"
    assert line in streamer.explain()
    gate.open()


def calls(streamer):
    yield lambda tenant: streamer.predict([1], tenant=tenant)
    yield lambda tenant: streamer.submit([1], tenant=tenant).result(LONG)
    yield lambda tenant: list(streamer.map([1], tenant=tenant))
    yield lambda tenant: list(streamer.stream(1, tenant=tenant))


def test_a_tenant_without_a_share_is_refused(streamers):
    streamer = streamers(tenants={"known": 1})
    for call in calls(streamer):
        assert call("known") == call(None) == call("") == [2]
        with pytest.raises(ValueError, match="tenant 'other' is not in tenants"):
            call("other")


def test_apredict_takes_a_tenant(streamers, run):
    streamer = streamers(tenants={"known": 1})
    assert run(streamer.apredict([1], tenant="known")) == [2]
    with pytest.raises(ValueError, match="'other'"):
        run(streamer.apredict([1], tenant="other"))


@pytest.mark.parametrize(
    ("tenant", "error", "message"),
    [
        (5, TypeError, "tenant must be a str, got int"),
        (b"one", TypeError, "tenant must be a str, got bytes"),
        ("x" * 201, ValueError, "tenant must have at most 200 characters, got 'xxx"),
        ("\ud800", ValueError, "surrogates"),
    ],
)
def test_a_wrong_tenant_is_named(streamers, tenant, error, message):
    streamer = streamers()
    for call in calls(streamer):
        with pytest.raises(error, match=message):
            call(tenant)
    assert streamer.predict([1], tenant="\N{EURO SIGN}" * 200) == [2]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"tenants": ["one"]}, TypeError, "tenants must be a mapping"),
        ({"tenants": {1: 1}}, ValueError, "names of at most 200 characters, not 1"),
        ({"tenants": {"x" * 201: 1}}, ValueError, "names of at most 200 characters"),
        ({"tenants": {"one": 0}}, ValueError, "shares from 1e-06 to 1e.06, not 0 for 'one'"),
        ({"tenants": {"*": math.nan}}, ValueError, "not nan for '\\*'"),
        ({"tenants": {"one": True}}, ValueError, "not True"),
        ({"max_queue_per_tenant": 0}, ValueError, "max_queue_per_tenant must be an int"),
    ],
)
def test_wrong_shares_are_named(options, error, message):
    with pytest.raises(error, match=message):
        ThreadedStreamer(list, 8, **options)


def test_clients_share_the_queue_of_the_server_by_tenant(process_streamers, process_gate):
    server = process_streamers(
        process_gate, batch_size=8, max_queue=200_000, tenants={"one": 1, "flood": 1}
    )
    server.submit(["first"])
    process_gate.wait_entered()
    with Streamer.connect(server.address) as flooding, Streamer.connect(server.address) as client:
        flood = [flooding.submit(["flood"] * 100, tenant="flood") for _ in range(100)]
        with pytest.raises(ValueError, match="tenant 'other' is not in tenants"):
            client.predict(["other"], tenant="other")
        single = client.submit(["one"], tenant="one")
        eventually(lambda: server.stats().queued_items == 10_001)
        process_gate.open()
        assert single.result(LONG) == ["oneone"]
        assert "one" in process_gate.batches[1]
        for future in flood:
            future.cancel()


def test_a_forked_child_has_the_shares_of_its_parent(process_streamers, tmp_path):
    streamer = process_streamers(tenants={"known": 1})
    pid = os.fork()
    if pid == 0:
        try:
            answer = streamer.predict([1], tenant="known", timeout=LONG)
            with pytest.raises(ValueError, match="'other'"):
                streamer.predict([1], tenant="other", timeout=LONG)
            (tmp_path / "answer").write_text(str(answer))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert (tmp_path / "answer").read_text() == "[1]"


def test_a_stage_gets_the_tenant_of_the_request():
    second = Stage(list, tenants={"known": 1})
    with Pipeline(list, second, tenants={"known": 1, "other": 1}) as pipeline:
        for call in calls(pipeline):
            assert call("known") == [1]
            with pytest.raises(ValueError, match="tenant 'other' is not in tenants"):
                call("other")
        with pytest.raises(ValueError, match="tenant 'third' is not in tenants"):
            pipeline.submit([1], tenant="third")
