"""Step models with ``max_weight``: what the live items weigh together."""

import pytest
from redis_backend import RedisPair
from step_models import Countdown, Stepped, down
from waits import LONG, eventually

pytest_plugins = ["step_fixtures"]

LIMIT = 20
ITEMS = [5, 3, 8, 12, 2, 50, 9, 1, 7, 7, 7, 20, 4]


class Totals(Countdown):
    """Each output is the sum of the live items."""

    def step(self, states):
        total = sum(item for item, _ in states)
        return [(total, done) for _, done in super().step(states)]


def weigh(item):
    return item


@pytest.fixture
def in_a_thread(step_streamers):
    return lambda **options: step_streamers(Totals(), **options)


@pytest.fixture
def in_processes(process_streamers):
    return lambda **options: process_streamers(Totals, 8, worker_num=2, **options)


@pytest.fixture
def over_the_broker(shared_redis_server):
    pairs = []

    def make(**options):
        pairs.append(RedisPair(shared_redis_server, Totals, 8, **options))
        return pairs[-1].streamer

    yield make
    for pair in pairs:
        pair.close()


@pytest.mark.parametrize(
    "place",
    [
        "in_a_thread",
        "in_processes",
        pytest.param("over_the_broker", marks=pytest.mark.over_redis),
    ],
)
def test_live_items_weigh_at_most_the_limit(request, place):
    streamer = request.getfixturevalue(place)(weight=weigh, max_weight=LIMIT)
    outputs = streamer.submit(ITEMS).result(LONG)
    for item, totals in zip(ITEMS, outputs, strict=True):
        assert len(totals) == item
        assert max(totals) <= max(LIMIT, item)
    assert any(max(totals) > item for item, totals in zip(ITEMS, outputs, strict=True))


def test_with_padding_the_heaviest_counts_for_all(step_streamers, stepped):
    streamer = step_streamers(stepped, weight=weigh, max_weight=LIMIT, padded=True)
    stepped.free()
    assert streamer.submit(ITEMS).result(LONG) == [down(item) for item in ITEMS]
    assert all(len(live) * max(live) <= LIMIT or len(live) == 1 for live in stepped.steps)
    assert [5, 3] in stepped.steps


def test_a_paused_item_keeps_its_weight(step_streamers):
    model = Stepped()
    model.free()
    streamer = step_streamers(model, weight=weigh, max_weight=350)
    with streamer.stream(300, timeout=LONG, buffer=4) as slow:
        assert next(slow) == 300
        eventually(lambda: streamer.stats().steps.paused == 1)
        beside, other = streamer.submit([50]), streamer.submit([51])
        assert beside.result(LONG) == [down(50)]
        eventually(lambda: streamer.stats().queued_items == 1)
        assert list(slow) == down(299)
    assert other.result(LONG) == [down(51)]
    assert [300] in model.steps
    assert all(300 not in live or 51 not in live for live in model.steps)


def test_a_report_names_the_limit(step_streamers, stepped):
    streamer = step_streamers(stepped, weight=weigh, max_weight=10)
    futures = [streamer.submit([9]) for _ in range(60)]
    stepped.free()
    for future in futures:
        future.result(LONG)
    assert "max_weight is the limit" in streamer.explain()


def test_an_item_above_the_limit_can_be_refused(step_streamers):
    streamer = step_streamers(Countdown(), weight=weigh, max_weight=10, strict_weight=True)
    with pytest.raises(ValueError, match="weighs 11, more than max_weight=10"):
        streamer.submit([3, 11])
    assert streamer.predict([10]) == [down(10)]
