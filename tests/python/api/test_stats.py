"""stats() counts what happened."""

import dataclasses
import pickle
import time

import pytest
from waits import LONG, eventually


@pytest.mark.not_redis
def test_requests_and_batches_are_counted(held, gate):
    streamer = held(batch_size=4)
    futures = [streamer.submit([i]) for i in range(4)]
    streamer.submit([9]).cancel()
    now = streamer.stats()
    assert (now.queued_items, now.queued_requests, now.running_items) == (4, 4, 1)
    assert (now.running_batches, now.idle_workers, now.workers) == (1, 0, 1)
    gate.open()
    for future in futures:
        future.result(LONG)
    eventually(lambda: streamer.stats().idle_workers == 1)
    stats = streamer.stats()
    assert (stats.submitted, stats.completed, stats.cancelled) == (6, 5, 1)
    assert (stats.batches, stats.items) == (2, 5)
    assert stats.batch_sizes == {1: 1, 4: 1}
    assert stats.mean_batch_size == 2.5
    assert sum(stats.close_reasons.values()) == 2
    assert stats.close_reasons["full"] == 1
    assert stats.peak_requests == 6
    assert (stats.queued_items, stats.running_items, stats.running_batches) == (0, 0, 0)


def test_each_way_to_end_is_counted_once(streamers, threads):
    def predict(batch):
        if "bad" in batch:
            raise ValueError("bad")
        return batch

    streamer = streamers(predict)
    streamer.predict([1])
    streamer.submit(["bad"]).exception(LONG)
    streamer.submit([1], timeout=0).exception(LONG)
    streamer.predict([])
    stats = streamer.stats()
    ends = ("completed", "failed", "expired", "cancelled", "dropped")
    assert stats.submitted == sum(getattr(stats, name) for name in ends)
    assert (stats.failed, stats.expired) == (1, 1)


@pytest.mark.not_redis
def test_stats_are_plain_and_frozen(streamers):
    streamer = streamers()
    streamer.predict([1])
    stats = streamer.stats()
    assert pickle.loads(pickle.dumps(stats)) == stats
    assert dataclasses.asdict(stats)["service_time"]["count"] == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        stats.batches = 0


@pytest.mark.not_redis
def test_the_last_minute_of_a_young_streamer_is_all_of_it(streamers):
    streamer = streamers(lambda batch: [item for item in batch if item or 1 / 0])
    streamer.predict([1, 2])
    streamer.submit([0]).exception(LONG)
    stats = streamer.stats()
    for recent in (stats.last_10s, stats.last_minute):
        assert recent.seconds == stats.uptime
        assert (recent.submitted, recent.completed, recent.failed) == (2, 1, 1)
        assert (recent.batches, recent.items, recent.mean_batch_size) == (2, 3, 1.5)
        assert recent.close_reasons == stats.close_reasons
        assert recent.service_time.buckets == stats.service_time.buckets
        assert recent.service_time.total == stats.service_time.total


def test_every_streamer_has_an_engine_of_its_own_and_an_age(streamers):
    first, second = streamers(), streamers()
    before, other = first.stats(), second.stats()
    after = first.stats()
    assert before.engine_id == after.engine_id != other.engine_id
    assert 0 < before.uptime < after.uptime
    assert before.worker_restarts == 0


# ------------------------------------------------------------- of worker processes

WORKER_TIMES = ("decode_time", "predict_time", "encode_time", "transport_time")


def times_of_one_batch(streamer, items):
    """What the worker's times are for one batch, the outputs, and the time that it took here."""
    start = time.perf_counter()
    outputs = streamer.predict(items, timeout=LONG)
    wall = time.perf_counter() - start
    (worker,) = streamer.stats().worker_processes
    times = {name: getattr(worker, name) for name in WORKER_TIMES}
    assert (worker.batches, worker.items) == (1, len(items))
    assert {name: summary.count for name, summary in times.items()} == dict.fromkeys(times, 1)
    return {name: summary.mean for name, summary in times.items()}, outputs, wall


def test_a_large_array_there_and_back_is_timed_part_by_part(process_streamers):
    numpy = pytest.importorskip("numpy")
    streamer = process_streamers(lambda batch: [array + 1 for array in batch])
    streamer.wait_ready(LONG)
    times, (output,), wall = times_of_one_batch(streamer, [numpy.zeros(4_000_000)])
    assert output.min() == output.max() == 1
    assert all(seconds > 0 for seconds in times.values())
    assert sum(times.values()) <= wall


SLOW = 0.05  # seconds


class SlowToLoad:
    def __reduce__(self):
        return time.sleep, (SLOW,)


class SlowToDump:
    def __reduce__(self):
        time.sleep(SLOW)
        return int, ()


@pytest.mark.parametrize(
    ("item", "output", "name"),
    [(SlowToLoad(), 0, "decode_time"), (1, SlowToDump(), "encode_time")],
)
def test_the_time_to_pickle_is_no_time_of_the_model(process_streamers, item, output, name):
    streamer = process_streamers(lambda batch: [output])
    streamer.wait_ready(LONG)
    times, outputs, wall = times_of_one_batch(streamer, [item])
    assert outputs == [0]
    assert times[name] >= SLOW
    assert sum(times.values()) <= wall
