"""stats() counts what happened; explain() says why, and what to change."""

import dataclasses
import pickle
import time

import pytest
from thread_models import double
from waits import LONG, eventually

from service_streamer import StreamerStats, TimeSummary
from service_streamer._explain import REASONS, explain

TIME = TimeSummary(count=1000, mean=2e-3, p50=1e-3, p90=3e-3, p99=9e-3, max=0.02)
BASE = StreamerStats(
    policy="adaptive",
    batch_size=64,
    max_latency=0.1,
    max_queue=65536,
    workers=1,
    idle_workers=1,
    queued_items=0,
    queued_requests=0,
    waiting_requests=0,
    running_items=0,
    running_batches=0,
    submitted=1000,
    completed=1000,
    failed=0,
    cancelled=0,
    expired=0,
    rejected=0,
    dropped=0,
    isolated=0,
    batches=100,
    items=1000,
    peak_requests=200,
    batch_sizes={10: 100},
    close_reasons={"idle": 100},
    queue_time=TimeSummary(1000, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4),
    service_time=TIME,
    delivery_time=TIME,
)


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
def test_times_are_measured(held, gate):
    streamer = held()
    gate.open()
    streamer.first.result(LONG)
    streamer.predict([1])
    stats = streamer.stats()
    assert stats.queue_time.count == stats.service_time.count == 2
    assert stats.delivery_time.count >= 1
    for summary in (stats.queue_time, stats.service_time):
        assert 0 <= summary.p50 <= summary.p90 <= summary.p99
        assert 0 < summary.mean <= summary.max < LONG


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
def test_stats_and_explain_work_at_every_stage(streamers):
    streamer = streamers()
    assert streamer.stats().mean_batch_size == 0
    assert len(streamer.explain().splitlines()) == 2
    streamer.predict([1])
    assert f"{type(streamer).__name__}(double)" in streamer.explain()
    streamer.close()
    assert streamer.stats().completed == 1
    assert "batch" in streamer.explain()


def changed(**changes):
    return explain("streamer", dataclasses.replace(BASE, **changes))


LIMITS = [  # each with the values that its sentence has
    ({"peak_requests": 8}, ["8 requests", "8 threads", "batch_size=64"]),
    ({"peak_requests": 1, "items": 100}, ["1 request ", "1 thread,"]),
    ({"close_reasons": {"full": 80, "idle": 20}}, ["batch_size=64", "80%"]),
    ({"batch_size": 1, "close_reasons": {"full": 100}}, ["batch_size=1 "]),
    ({"close_reasons": {"max_latency": 90, "idle": 10}}, ["max_latency=100 ms", "90%"]),
    (
        {"close_reasons": {"window": 80, "full": 20}, "policy": "window"},
        ["max_latency=100 ms", "80%", 'policy="adaptive"'],
    ),
    ({"close_reasons": {"returned": 60, "linger": 40}}, []),
    ({"close_reasons": {"share": 90, "idle": 10}}, []),
    ({"close_reasons": {"priority": 100}}, ["priority=0"]),
    ({"close_reasons": {"drain": 100}}, []),
    (
        {"close_reasons": {"idle": 100}, "policy": "greedy"},
        ['policy="greedy"', 'policy="adaptive"'],
    ),
    ({"close_reasons": {"idle": 100}}, []),
    (
        {
            "close_reasons": {"idle": 100},
            "queue_time": TimeSummary(640, 0.01, 0.01, 0.01, 0.02, 0.02),
        },
        ["2 ms"],
    ),
]


def test_one_sentence_says_what_limits_the_batch_size():
    sentences = [changed(**changes).splitlines()[-1] for changes, _ in LIMITS]
    for sentence, (_, values) in zip(sentences, LIMITS, strict=True):
        assert [value for value in values if value not in sentence] == []
    assert len(set(sentences)) == len(LIMITS)


def test_reasons_are_listed_most_frequent_first():
    reasons = [
        *("full", "idle", "returned", "linger", "max_latency", "window"),
        *("share", "priority", "drain"),
    ]
    text = changed(close_reasons={reason: 10 + i for i, reason in enumerate(reasons)})
    lines = [text.index(REASONS[reason]) for reason in reversed(reasons)]
    assert lines == sorted(lines)


def test_few_sizes_have_a_bin_each_and_many_share_bins():
    few = changed(batch_sizes={1: 5, 64: 5})
    assert "\n  1 " in few
    assert "\n  64 " in few
    many = changed(batch_sizes=dict.fromkeys(range(1, 65), 1))
    for label in ("1 ", "2-3 ", "4-7 ", "8-15 ", "16-31 ", "32-63 ", "64"):
        assert f"\n  {label}" in many


def test_troubles_are_told_when_there_are_any():
    assert "cancelled" not in changed()
    text = changed(failed=2, isolated=30, expired=3, cancelled=4, rejected=5, dropped=6)
    for value in ("2 failed", "30 answered", "3 expired", "4 cancelled", "5 rejected", "6 ended"):
        assert value in text


@pytest.mark.not_redis
def test_the_histogram_of_a_real_run_adds_up(streamers, threads):
    streamer = streamers(double, batch_size=4)
    for i in range(8):
        threads.run(lambda i=i: [streamer.predict([i]) for _ in range(50)])
    threads.join()
    stats = streamer.stats()
    assert sum(size * n for size, n in stats.batch_sizes.items()) == stats.items == 400
    assert sum(stats.batch_sizes.values()) == sum(stats.close_reasons.values()) == stats.batches


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


def test_the_times_of_each_worker_are_explained(process_streamers):
    numpy = pytest.importorskip("numpy")
    streamer = process_streamers(worker_num=2, wait_for_worker_ready=True)
    streamer.predict([numpy.zeros(1_000_000)])
    lines = streamer.explain().splitlines()
    (first,) = (i for i, line in enumerate(lines) if line.startswith("worker processes"))
    assert lines[first].split()[-8:] == [
        *("state", "device", "batches", "items"),
        *("decode", "model", "encode", "transport"),
    ]
    rows = [line.split() for line in lines[first + 1 : first + 3]]
    workers = streamer.stats().worker_processes
    assert [int(row[1]) for row in rows] == [worker.pid for worker in workers]
    for row, worker in zip(rows, workers, strict=True):
        assert row[2] == "ready"
        assert row[4] == str(worker.batches)
        assert (row[-4:] == ["-"] * 4) == (worker.batches == 0)
    assert sum(worker.batches for worker in workers) == 1
