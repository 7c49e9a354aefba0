"""The cases with their peers, in the order of the report."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch

from measurements import (
    BARE,
    BATCHED,
    MODEL_128,
    ORIGINAL,
    ORIGINALS,
    PLAIN,
    PROCESSES,
    THREADED,
    Case,
    arrays,
    case,
    clients,
    native,
    processes,
    ray,
    redis,
    slo,
    threads,
    web,
    with_broker,
)

CASES: tuple[Case, ...] = (
    threads("noop", 1, THREADED),
    threads("noop", 16, THREADED),
    threads("noop", 128, THREADED),
    *(threads("noop", clients, ("ours",)) for clients in (512, 1024)),
    *(threads("tabular", clients, ("ours",)) for clients in (16, 64, 128)),
    threads("model", 1, (*THREADED, BARE)),
    threads("model", 16, THREADED),
    threads("model", 128, THREADED),
    case(
        "poisson",
        "cases.poisson",
        ("ours", "ours-greedy", *ORIGINALS),
        seconds=8,
        quick_seconds=4,
        seeded=True,
    ),
    case("futures", "cases.futures", ("ours", *ORIGINALS)),
    case("asyncio-noop-128", "cases.tasks", ("ours", BATCHED), "--clients", "128"),
    case("asyncio-model-128", "cases.tasks", ("ours", BATCHED), *MODEL_128),
    case(
        "asyncio-model-16", "cases.tasks", ("ours", BATCHED), "--model", "model", "--clients", "16"
    ),
    case("gevent-noop-128", "cases.greenlets", ("ours", *ORIGINALS), "--clients", "128"),
    case("gevent-model-128", "cases.greenlets", ("ours", *ORIGINALS), *MODEL_128),
    web(
        "flask-gthread",
        [
            ("ours", "gthread", "model", "1,16,128"),
            (BARE, "gthread", "bare", "1"),
            ("original-0.1", "gthread", "model", "1,16,128"),
            ("original-0.005", "gthread", "model", "1,16,128"),
            ("original-0.001", "gthread", "model", "1,16,128"),
        ],
    ),
    web(
        "flask-granian",
        [
            ("ours", "granian", "model", "16,128"),
            ("original-0.005", "granian", "model", "16,128"),
        ],
    ),
    web(
        "fastapi",
        [
            ("ours", "fastapi", "model", "16,128"),
            (BATCHED, "fastapi", "model", "16,128"),
            ("mosec", "mosec", "model", "16,128"),
        ],
    ),
    # When wrk ends, it does not count the 128 requests in flight: 1.2 % of those in 3 s.
    web(
        "asgi-model",
        [("ours", "asgi", "model", "16,128"), (BATCHED, "asgi", "model", "16,128")],
        seconds=10,
    ),
    web(
        "asgi-noop",
        [
            ("ours", "asgi", "noop", "128"),
            (BATCHED, "asgi", "noop", "128"),
            ("mosec", "mosec", "noop", "128"),
        ],
    ),
    case(
        "idle",
        "cases.idle",
        ("ours", *ORIGINALS),
        seconds=8,
        quick_seconds=8,
        once=True,
        at_once=True,
    ),
    case("memory", "cases.memory", ("ours",), once=True),
    processes(1, "noop", 1),
    processes(1, "noop", 16),
    processes(1, "noop", 128),
    processes(1, "model", 1),
    processes(1, "model", 16),
    processes(2, "model", 16),
    processes(2, "model", 64),
    processes(2, "model", 128),
    case("processes-asyncio-noop-128", "cases.tasks", ("ours",), "--workers", "1"),
    clients(1, "noop"),
    clients(2, "model"),
    arrays("noop", 602, 1),
    arrays("noop", 602, 16),
    arrays("model", 8000, 1),
    case("processes-futures", "cases.futures", PROCESSES, "--workers", "1"),
    case("processes-kill", "cases.kill", ("ours",), "--workers", "2", seconds=6),
    case(
        "processes-idle",
        "cases.idle",
        PROCESSES,
        "--workers",
        "1",
        seconds=8,
        quick_seconds=8,
        once=True,
        at_once=True,
    ),
    case("processes-memory", "cases.shared_model", ("ours",), once=True),
    with_broker(redis("noop-1", "cases.threads", PROCESSES)),
    with_broker(redis("noop-128", "cases.threads", PROCESSES, "--clients", "128", seconds=4)),
    redis("noop-forked", "cases.clients", ("ours", ORIGINAL), seconds=4),
    redis("asyncio-noop-128", "cases.tasks", ("ours",), "--clients", "128"),
    redis("model-128", "cases.threads", ("ours", ORIGINAL), "--model", "model", "--clients", "128"),
    *(
        redis(
            f"2-model-{clients}",
            "cases.threads",
            ("ours", ORIGINAL),
            *("--workers", "2", "--model", "model", "--clients", str(clients)),
        )
        for clients in (128, 256)
    ),
    redis("futures", "cases.futures", ("ours", ORIGINAL)),
    redis("memory", "cases.redis_memory", ("ours",), once=True),
    ray("noop-1", "cases.threads"),
    ray("noop-128", "cases.threads", "--clients", "128"),
    ray("asyncio-noop-128", "cases.tasks", "--clients", "128"),
    ray("2-model-128", "cases.threads", "--workers", "2", *MODEL_128),
    ray("asyncio-2-model-128", "cases.tasks", "--workers", "2", *MODEL_128),
    ray("arrays-602-1", "cases.arrays", "--kilobytes", "602"),
    ray("arrays-602-16", "cases.arrays", "--kilobytes", "602", "--clients", "16"),
    case("monitoring", "cases.monitoring", ("ours", BARE), "--model", "model", seconds=15),
    case("monitoring-scrape", "cases.scrape", ("ours",), seconds=3),
    case("monitoring-threads", "cases.metrics_cost", ("ours",), seconds=2),
    case(
        "monitoring-servers",
        "cases.metrics_cost",
        ("ours", "litserve", "bentoml"),
        *("--served", "1"),
        seconds=2,
    ),
    *(slo(load, *where) for where in ((), ("--workers", "2")) for load in (80, 130)),
    native("tasks", "tasks"),
    native("caller", "caller"),
    native("caller-switch", "caller", "--switch", "0.0005"),
    native("threads", "threads"),
    native("nothing", "nothing"),
    native("collate", "collate"),
    native("pad", "pad"),
    case(
        "native-pictures",
        "cases.pictures",
        ("ours", "ours-alone-1", "ours-alone-all"),
        seconds=5,
    ),
    case(
        "native-lengths",
        "cases.lengths",
        ("ours", PLAIN),
        seconds=20,
        quick_seconds=8,
        seeded=True,
    ),
    web(
        "native-flask",
        [
            ("ours", "embeddings", "native", "32"),
            ("ours-alone", "embeddings", "alone", "32"),
            ("ours-eager", "embeddings", "eager", "32"),
            ("original-0.005", "embeddings", "eager", "32"),
        ],
        seconds=5,
    ),
)


PARTS = {
    "local": "In one process, and behind web servers",
    "processes": "Worker processes",
    "redis": "Over Redis",
    "monitoring": "Probes and metrics",
    "ray": "On a Ray cluster",
    "slo": "A target for the latency",
    "native": "Native models",
}
"""the parts, which are measured and shown separately: names and headings"""


def part_of(name: str) -> str:
    """The part of a case."""
    start = name.partition("-")[0]
    return start if start in PARTS else "local"


def chosen(patterns: Sequence[str]) -> list[Case]:
    """The cases whose name equals, starts with or matches a pattern. All if there are none."""
    if not patterns:
        return list(CASES)
    return [
        case
        for case in CASES
        if any(case.name.startswith(p) or fnmatch(case.name, p) for p in patterns)
    ]
