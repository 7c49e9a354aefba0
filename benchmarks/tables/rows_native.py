"""The targets of native models: the rows of the table."""

# ruff: noqa: RUF001 - the table uses typographic signs

from __future__ import annotations

from measurements import EAGER, PLAIN

from .figures import Check, Figure, Results, Row, at_least, at_most, informative, rate


def below(case: str, *peers: str, metric: str) -> Check:
    def check(results: Results, ours: float) -> bool:
        others = [results.get(case, peer, metric) for peer in peers]
        return all(other is not None and ours < other for other in others)

    return check


def naive_and_original(results: Results, ours: float) -> bool:
    naive = results.get("native-flask", "ours-alone", "per_s@32")
    original = results.best("native-flask", ("original-0.005",), "per_s@32")
    return naive is not None and ours >= 2 * naive and (original is None or ours >= original)


ALONE = ("ours-alone-1", "ours-alone-all")


def faster_or_full(results: Results, ours: float) -> bool:
    alone = results.best("native-pictures", ALONE, "per_s")
    cores = results.get("native-pictures", "ours", "cores")
    return (alone is not None and ours >= 1.6 * alone) or (cores is not None and cores >= 0.9)


def faster_by(case: str, factor: float, metric: str) -> Check:
    def check(results: Results, ours: float) -> bool:
        plain = results.get(case, PLAIN, metric)
        return plain is not None and ours >= factor * plain

    return check


NATIVE_ROWS: tuple[Row, ...] = (
    Row(
        "encoder, 32 tasks of one loop beside a busy Python thread: share of the throughput that"
        " there is without it / of the core that the thread has alone",
        "≥ 0.85 / ≥ 0.9",
        (
            Figure("native-tasks", "kept", "x", at_least(0.85)),
            Figure("native-tasks", "busy_kept", "x", at_least(0.9)),
        ),
        peers=(EAGER,),
    ),
    Row(
        "encoder, one blocking caller beside a busy Python thread / with a switch interval of"
        " 0.5 ms",
        "≥ 120 / ≥ 500 per s",
        (rate("native-caller", 120), rate("native-caller-switch", 500)),
        peers=(EAGER,),
    ),
    Row(
        "encoder, 64 clients, 1 / 2 C++ workers / times as much",
        "2 workers ≥ 1.8 × one",
        (
            Figure("native-threads", "one_per_s", "/s", informative),
            Figure("native-threads", "two_per_s", "/s", informative),
            Figure("native-threads", "gain", "x", at_least(1.8)),
        ),
        peers=(EAGER,),
    ),
    Row(
        "model that does nothing, 1 client, p50 / beyond the model's own and two wake-ups",
        "below the Python path / ≤ 0.02 ms",
        (
            Figure(
                "native-nothing", "p50_ms", "ms", below("native-nothing", EAGER, metric="p50_ms")
            ),
            Figure("native-nothing", "beyond_ms", "ms", at_most(0.02)),
        ),
        peers=(EAGER,),
    ),
    Row(
        "collate 64 × 3×224×224 float32, the whole call (torch: torch.stack alone)",
        "≤ 5 ms",
        (Figure("native-collate", "p50_ms", "ms", at_most(5)),),
        peers=(EAGER,),
    ),
    Row(
        "pad 64 × ≤ 512 int64, with mask and lengths (torch: pad_sequence alone)",
        "≤ 0.04 ms",
        (Figure("native-pad", "pad_ms", "ms", at_most(0.04)),),
        peers=(EAGER,),
    ),
    Row(
        "JPEG files, decode + network + answer, 64 clients / part of the cores in use / processor"
        " time per file, and that of the clients / one request of 64 files",
        "pipeline ≥ 1.6 × one process, or cores ≥ 0.9; faster",
        (
            Figure("native-pictures", "per_s", "/s", faster_or_full),
            Figure("native-pictures", "cores", "x", informative),
            Figure("native-pictures", "cpu_ms", "ms", informative),
            Figure("native-pictures", "clients_ms", "ms", informative),
            Figure(
                "native-pictures",
                "large_ms",
                "ms",
                below("native-pictures", *ALONE, metric="large_ms"),
            ),
        ),
        peers=ALONE,
    ),
    Row(
        "MiniLM, sentences of log-normal lengths, 32 clients, with `bucket=`, per s / p99 / one"
        " request of 256 sentences",
        "≥ 1.3 × without buckets; p99 below",
        (
            Figure("native-lengths", "per_s", "/s", faster_by("native-lengths", 1.3, "per_s")),
            Figure(
                "native-lengths", "p99_ms", "ms", below("native-lengths", PLAIN, metric="p99_ms")
            ),
            Figure(
                "native-lengths",
                "large_per_s",
                "/s",
                faster_by("native-lengths", 1.3, "large_per_s"),
            ),
        ),
        peers=(PLAIN,),
    ),
    Row(
        "MiniLM, Flask + gunicorn gthread, 32 connections, per s / p99",
        "≥ 2 × one at a time, ≥ the original with the eager model; p99 below both",
        (
            Figure("native-flask", "per_s@32", "/s", naive_and_original),
            Figure(
                "native-flask",
                "p99_ms@32",
                "ms",
                below("native-flask", "ours-alone", "original-0.005", metric="p99_ms@32"),
            ),
        ),
        peers=("ours-alone",),
    ),
)
