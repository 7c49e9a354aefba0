"""The option ``bucket``: items of similar weight run together."""

import array
import random
import time

import pytest
from process_models import ProcessGate
from waits import LONG, eventually

from service_streamer import Streamer, ThreadedStreamer
from service_streamer._base.grouping import Grouping

FIXED = 0.002  # s: of each batch of `padded`
PER_UNIT = 0.0001  # s: of the padded weight


def longest(batch):
    """Return the longest item of the batch for each item."""
    return [(item, max(map(len, batch))) for item in batch]


def padded(batch):
    time.sleep(FIXED + PER_UNIT * len(batch) * max(map(len, batch)))
    return [len(item) for item in batch]


def keys_of(grouping, items):
    ordered, (keys, weights, order) = grouping.group(items)
    assert list(array.array("d", weights)) == [len(item) for item in ordered]
    if order is not None:
        assert [items[index] for index in order] == list(ordered)
    return ordered, array.array("Q", keys).tolist()


def test_an_item_is_in_the_first_bucket_whose_bound_is_not_less():
    items = ["", "a", "aa", "aaa", "aaaa", "aaaaaaaaa"]
    ordered, keys = keys_of(Grouping(None, len, bucket=(1, 3)), items)
    assert (ordered, keys) == (items, [0, 0, 1, 1, 2, 2])


def test_the_items_of_a_key_are_in_the_order_of_their_buckets():
    grouping = Grouping(lambda item: item[0], len, bucket=(1, 2))
    ordered, keys = keys_of(grouping, ["aaa", "b", "aa", "bb", "a"])
    assert ordered == ["a", "aa", "aaa", "b", "bb"]
    assert [key & 63 for key in keys] == [0, 1, 2, 0, 1]
    assert len({key >> 6 for key in keys}) == 2


def test_outputs_are_in_the_order_of_the_items(streamers):
    streamer = streamers(longest, 8, weight=len, bucket=(2, 8, 32))
    items = ["x" * random.Random(seed).randrange(50) for seed in range(40)]
    assert [output[0] for output in streamer.predict(items)] == items
    futures = [streamer.submit([item]) for item in items]
    assert [future.result(LONG)[0][0] for future in futures] == items


@pytest.mark.not_redis
def test_the_first_batch_has_one_bucket(streamers):
    """Nothing is known about the model yet."""
    streamer = streamers(longest, 8, weight=len, bucket=(2, 8))
    outputs = streamer.predict(["x" * 20, "x", "xx"])
    assert [length for _, length in outputs] == [20, 2, 2]
    stats = streamer.stats()
    assert (stats.buckets, stats.padding) == (3, pytest.approx(1 / 24))


@pytest.mark.in_process
def test_buckets_run_together_where_a_batch_costs_more_than_the_padding(streamers):
    streamer = streamers(padded, 16, weight=len, bucket=(4, 64))
    for length in (4, 64, 4, 64, 4, 64):  # teaches what a batch costs
        streamer.predict(["x" * length] * 4)
    before = streamer.stats().batches
    streamer.predict(["x" * 3, "x" * 5])
    assert streamer.stats().batches == before + 1
    streamer.predict([*["x"] * 12, "x" * 64])
    assert streamer.stats().batches == before + 3


def test_clients_have_the_buckets_of_their_streamer(tmp_path, leftovers):
    gate = ProcessGate(tmp_path)
    leftovers.append(gate.close)
    options = {"weight": len, "bucket": (2, 4)}
    with Streamer(gate, 8, mp_start_method="fork", **options) as streamer:
        with Streamer.connect(streamer.address, **options) as client:
            first = streamer.submit(["x"])
            gate.wait_entered()
            futures = [each.submit([item]) for item in ("a", "bbb") for each in (streamer, client)]
            eventually(lambda: streamer.stats().queued_requests == 4)
            assert client.stats().buckets == 3
            gate.open()
            for future in (first, *futures):
                future.result(LONG)
        assert streamer.stats().batch_sizes == {1: 1, 4: 1}, "nothing but the fixed cost is known"


def test_the_report_has_the_remaining_padding():
    with ThreadedStreamer(longest, 8, weight=len, bucket=(2, 8)) as streamer:
        streamer.predict(["x", "xx"])
        assert "padding, with 3 buckets" in streamer.explain()
    with ThreadedStreamer(longest, 8, weight=len, max_weight=99, padded=True) as streamer:
        streamer.predict(["x", "x" * 9])
        assert "padding: bucket= would put items of similar weight together" in streamer.explain()
