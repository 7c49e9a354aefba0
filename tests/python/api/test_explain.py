"""explain() says why batches have their size, and what to change."""

import dataclasses
import os
import sys
import types

import pytest
from summaries import BUSY, QUIET, STREAMER, summary_of

from service_streamer import TimeSummary, WorkerStats
from service_streamer._redis import explanation as redis_explanation
from service_streamer._statistics import verdict as verdicts
from service_streamer._statistics.explain import REASONS, explain
from service_streamer._statistics.parts import StepStats, StreamStats
from service_streamer._statistics.verdict import ENOUGH_BATCHES, verdict


def changed(**changes):
    return explain("streamer", dataclasses.replace(STREAMER, **changes))


FAST = {"service_time": summary_of(*100 * [2e-5])}
FEW = {"peak_requests": 8}
"""fewer callers than items in a batch"""

STEPS = StepStats(live=3, paused=0, admitted=50, steps=40, stepped=120, outputs=120)

# The row that applies, the statistics, and parts of its sentence.
ROWS = [
    (verdicts.no_batch, {"batches": 0}, []),
    (verdicts.few_batches, {"batches": 1, "close_reasons": {"full": 1}}, ["1 batch so far"]),
    (verdicts.few_batches, {"batches": 19, **FEW}, ["19 batches", "after 20"]),
    (verdicts.few_steps, {"steps": dataclasses.replace(STEPS, steps=19)}, ["19 steps"]),
    (verdicts.steps, {"steps": STEPS}, ["3.0 items are live on average"]),
    (verdicts.steps, {"steps": dataclasses.replace(STEPS, steps=0)}, ["3.0 items are live now"]),
    (verdicts.low_slo, {"slo": 0.01, "least_service": 0.02, "batches": 1}, ["slo=10 ms "]),
    (verdicts.refusing_slo, {"slo": 0.01, "rejected": 1000}, ["slo=10 ms ", "50%"]),
    (verdicts.few_batches, {"slo": 0.01, "rejected": 1, "completed": 18, "batches": 18}, []),
    (verdicts.single_items, {"batch_size": 1, "close_reasons": {"full": 100}}, ["batch_size=1 "]),
    (verdicts.full_batches, {"close_reasons": {"full": 80}}, ["batch_size=64", "80%"]),
    (verdicts.memory, {"close_reasons": {"memory": 80}}, ["80%"]),
    (verdicts.full_batches, {"batches": 20, "close_reasons": {"full": 10}}, ["50%"]),
    (
        verdicts.proportional_time,
        {"close_reasons": {"share": 90}, "workers": 2},
        ["split among idle workers"],
    ),
    (verdicts.proportional_time, {"close_reasons": {"share": 90}}, ["the worker takes half of"]),
    (verdicts.proportional_time, {"close_reasons": {"share": 20, "idle": 80}, **FEW}, []),
    (verdicts.few_callers, {"close_reasons": {"share": 19, "idle": 81}, **FEW}, []),
    (verdicts.busy_model, {**FEW, "uptime": 2.2}, ["its worker is busy for 91% of", "Add workers"]),
    (verdicts.busy_model, {**FEW, "uptime": 1.05, "workers": 2}, ["its workers are busy for 95%"]),
    (verdicts.few_callers, {**FEW, "uptime": 2.25}, ["8 requests ", "batch_size=64", "raise it"]),
    (verdicts.few_callers, {"peak_requests": 1, "items": 100}, ["1 request "]),
    (verdicts.groups, {"other_keys": 60, "peak_requests": 2000}, ["The keys are", "60% of"]),
    (
        verdicts.groups,
        {"other_keys": 60, "peak_requests": 2000, "buckets": 5},
        ["The buckets are", "60% of"],
    ),
    (verdicts.latency, {"close_reasons": {"max_latency": 90}}, ["max_latency=100 ms", "90%"]),
    (
        verdicts.latency,
        {"close_reasons": {"window": 80}, "policy": "window"},
        ["max_latency=100 ms", "80%", 'policy="adaptive"'],
    ),
    (verdicts.returning_callers, {"close_reasons": {"returned": 30, "linger": 20}}, []),
    (verdicts.priorities, {"close_reasons": {"priority": 100}}, ["priority=0"]),
    (verdicts.closing, {"close_reasons": {"drain": 100}}, []),
    (verdicts.fast_model, {**FEW, **FAST}, ["fast (20 µs ", "8 requests "]),
    (verdicts.arrivals, {"queue_time": summary_of(*640 * [0.01])}, ["2 ms"]),
    (verdicts.greedy_policy, {"policy": "greedy"}, ['policy="greedy"', 'policy="adaptive"']),
    (verdicts.idle_workers, {}, []),
]


@pytest.mark.parametrize(("row", "changes", "parts"), ROWS)
def test_the_first_row_that_applies_is_the_limit(row, changes, parts):
    stats = dataclasses.replace(STREAMER, **changes)
    evidence = verdicts.Evidence(stats, stats)
    first = next(each for each in verdicts.ROWS if each(evidence) is not None)
    assert first.__name__ == row.__name__
    sentence = verdict(stats)
    assert sentence == row(evidence)
    assert [part for part in parts if part not in sentence] == []
    assert explain("streamer", stats).splitlines()[-1] == sentence


def test_each_row_has_a_case():
    assert {row for row, _, _ in ROWS} == set(verdicts.ROWS)


def test_a_report_in_a_notebook_names_no_web_server(monkeypatch):
    assert "web server" in changed(**FEW)
    shell = types.SimpleNamespace(get_ipython=lambda: object())
    monkeypatch.setitem(sys.modules, "IPython", shell)
    text = changed(**FEW)
    assert "web server" not in text
    assert text.endswith("Send more at once: a longer list, map(), or submit() before the first "
                         "result().")  # fmt: skip


def test_a_model_that_was_always_busy_in_the_last_minute_is_the_limit():
    minute = dataclasses.replace(BUSY, seconds=2.1)
    assert "worker is busy for 95%" in changed(**FEW, last_minute=minute)
    assert "number of callers" in changed(**FEW, last_minute=BUSY, uptime=1.0)


@pytest.mark.parametrize(
    ("counts", "first"),
    [
        ({"completed": 95, "failed": 5}, None),
        (
            {"completed": 94, "failed": 6},
            "Failures come first: of 100 requests, 6 failed. Find their cause before you tune "
            "anything else.",
        ),
        ({"completed": 0, "failed": 1}, "Failures come first: of 1 request, 1 failed. "),
        ({"completed": 100, "failed": 0, "isolated": 5}, None),
        ({"completed": 0, "failed": 0}, None),
        (
            {"completed": 900, "failed": 100, "isolated": 2000},
            "of 1,000 requests, 100 failed and 2,000 were answered although their batch raised. ",
        ),
    ],
)
def test_many_failures_are_the_first_sentence(counts, first):
    stats = dataclasses.replace(STREAMER, **counts)
    sentence = verdict(stats)
    assert sentence.endswith(verdict(STREAMER))
    assert (sentence == verdict(STREAMER)) == (first is None)
    assert (first or "") in sentence
    few = verdict(dataclasses.replace(stats, batches=1))
    assert few.startswith("Failures come first") == (first is not None)


def test_many_failures_are_the_first_sentence_over_redis():
    queue = StreamStats(length=0, pending=0, oldest_waiting=None, consumers=(), refused=0)
    stats = dataclasses.replace(STREAMER, completed=94, failed=6, stream=queue)
    sentence = redis_explanation.explain("streamer", stats, "").splitlines()[-1]
    assert sentence.startswith("Failures come first: of 100 requests, 6 failed. ")
    assert sentence.endswith(redis_explanation.verdict(queue))


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
def test_cpus_of_workers_and_too_many_threads_are_reported(workers, lines, monkeypatch):
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


def test_troubles_are_reported_when_there_are_any():
    assert "cancelled" not in changed()
    text = changed(failed=2, isolated=30, expired=3, cancelled=4, rejected=5, dropped=6)
    for value in ("2 failed", "30 answered", "3 expired", "4 cancelled", "5 rejected", "6 ended"):
        assert value in text


def test_padding_and_other_keys_are_reported_when_there_are_any():
    assert "padding" not in changed()
    text = changed(weight=600.0, padded_weight=800.0, other_keys=30)
    assert "25% of the weight of batches is padding" in text
    assert "30 batches could have been larger" in text


def test_buckets_are_advised_for_much_padding_and_reported_if_set():
    assert "bucket=" not in changed(weight=900.0, padded_weight=1000.0)
    assert "bucket=" in changed(weight=600.0, padded_weight=1000.0)
    text = changed(weight=600.0, padded_weight=1000.0, buckets=5, other_keys=30)
    assert "40% of the weight of batches is padding, with 5 buckets" in text
    assert "had other keys or buckets" in text


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
