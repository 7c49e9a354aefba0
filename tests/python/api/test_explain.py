"""explain() says why batches have their size, and what to change."""

import dataclasses
import os

import pytest
from summaries import BUSY, QUIET, STREAMER, summary_of

from service_streamer import TimeSummary, WorkerStats
from service_streamer._statistics.explain import ENOUGH_BATCHES, REASONS, explain, verdict


def changed(**changes):
    return explain("streamer", dataclasses.replace(STREAMER, **changes))


LIMITS = [  # each with the values that its sentence has
    ({"peak_requests": 8}, ["8 requests ", "batch_size=64"]),
    ({"peak_requests": 1, "items": 100}, ["1 request "]),
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
        {"peak_requests": 8, "service_time": summary_of(*100 * [2e-5])},
        ["fast (20 µs ", "8 requests "],
    ),
    (
        {
            "close_reasons": {"idle": 100},
            "queue_time": summary_of(*640 * [0.01]),
        },
        ["2 ms"],
    ),
]


def test_one_sentence_says_what_limits_the_batch_size():
    sentences = [changed(**changes).splitlines()[-1] for changes, _ in LIMITS]
    for sentence, (_, values) in zip(sentences, LIMITS, strict=True):
        assert [value for value in values if value not in sentence] == []
    assert len(set(sentences)) == len(LIMITS)


def worker(pid, threads="1", **more):
    times = ("decode_time", "predict_time", "encode_time", "transport_time")
    return WorkerStats(
        pid=pid,
        state="ready",
        device=more.pop("device", None),
        threads=threads,
        batches=1,
        items=1,
        **{name: TimeSummary.empty() for name in times},
        busy_time=0.0,
        **more,
    )


@pytest.mark.parametrize(
    ("workers", "lines"),
    [
        ([worker(1), worker(2), worker(3)], []),
        ([worker(1, None), worker(2, None)], []),
        ([worker(1, "8", device="0"), worker(2, "8", device="1")], []),
        (
            [worker(1, cpus="0-3", numa_node=1), worker(2)],
            ["pid 1 is bound to CPUs 0-3 of node 1", "1 more is not bound"],
        ),
        (
            [worker(1, "4", cpus="0-3"), worker(2, "2", cpus="0-3"), worker(3, "2", cpus="4-5")],
            [
                *("pid 1 is bound to CPUs 0-3", "pid 2 is bound to CPUs 0-3"),
                "pid 3 is bound to CPUs 4-5",
                "3 workers with up to 4 threads share 6 CPUs: threads_per_worker=2 gives each its "
                "own",
            ],
        ),
        (
            [worker(1, "2"), worker(2, "2")],
            ["2 workers with up to 2 threads share 3 CPUs: threads_per_worker=1 gives each its "
             "own"],
        ),
        ([worker(1, "2", intra_op_threads=1), worker(2, "2", intra_op_threads=2)], []),
        (
            [worker(1, None, intra_op_threads=8)],
            ["1 worker with up to 8 threads share 3 CPUs: threads_per_worker=3 gives each its own"],
        ),
    ],
)  # fmt: skip
def test_the_cpus_of_workers_are_told_and_threads_that_are_too_many(workers, lines, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
    table = [f"pid {each.pid}" for each in workers]
    text = changed(worker_processes=tuple(workers)).partition("worker processes")[2]
    shown = [line.strip() for line in text.partition("\n\n")[0].splitlines()[1:]]
    assert [line.partition("  ")[0] for line in shown[: len(table)]] == table
    assert shown[len(table) :] == lines


def test_reasons_are_listed_most_frequent_first():
    reasons = [
        *("full", "idle", "returned", "linger", "max_latency", "window"),
        *("share", "priority", "slo", "drain"),
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


def test_padding_and_other_keys_are_told_when_there_are_any():
    assert "padding" not in changed()
    text = changed(weight=600.0, padded_weight=800.0, other_keys=30)
    assert "25% of the weight of batches is padding" in text
    assert "30 batches could have been larger" in text
    assert "The keys are the limit: when 60% of" in changed(other_keys=60, peak_requests=2000)


def test_buckets_are_advised_where_much_is_padding_and_told_where_there_are_any():
    assert "bucket=" not in changed(weight=900.0, padded_weight=1000.0)
    assert "bucket=" in changed(weight=600.0, padded_weight=1000.0)
    text = changed(weight=600.0, padded_weight=1000.0, buckets=5, other_keys=30)
    assert "40% of the weight of batches is padding, with 5 buckets" in text
    assert "had other keys or buckets" in text
    limit = changed(other_keys=60, peak_requests=2000, buckets=5)
    assert "The buckets are the limit: when 60% of" in limit


def row(text, label):
    (line,) = (line for line in text.splitlines() if line.startswith(f"  {label}"))
    return line


SLOW_START = summary_of(*30 * [0.193], *1600 * [1e-3])


def test_a_slow_start_is_forgotten_after_a_minute():
    recent = dataclasses.replace(BUSY, service_time=summary_of(*1600 * [1e-3]))
    assert "193 ms" in row(changed(service_time=SLOW_START), "service")
    text = changed(service_time=SLOW_START, last_minute=recent)
    assert "193 ms" not in row(text, "service")


@pytest.mark.parametrize("batches", [0, ENOUGH_BATCHES - 1])
def test_few_batches_in_the_last_minute_explain_nothing(batches):
    recent = dataclasses.replace(QUIET, batches=batches, close_reasons={"drain": batches})
    text = changed(last_minute=recent)
    assert "All is since the start" in text
    assert text.splitlines()[-1] == changed().splitlines()[-1]
    assert REASONS["drain"] not in text


def test_reasons_and_limit_are_those_of_the_last_minute():
    recent = dataclasses.replace(
        BUSY, batches=ENOUGH_BATCHES, close_reasons={"full": ENOUGH_BATCHES}
    )
    text = changed(last_minute=recent)
    assert f"of the last minute ({ENOUGH_BATCHES} batches)" in text
    assert "100 batches, 10.0 on average" in text  # since the start
    assert REASONS["idle"] not in text
    assert "100% of the batches are full" in text.splitlines()[-1]


def test_a_live_view_asks_about_a_shorter_window():
    full = dataclasses.replace(
        QUIET, batches=ENOUGH_BATCHES, close_reasons={"full": ENOUGH_BATCHES}
    )
    few = dataclasses.replace(full, batches=ENOUGH_BATCHES - 1)
    assert "of the batches are full" in verdict(STREAMER, full)
    assert verdict(STREAMER, few) == verdict(STREAMER)


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
