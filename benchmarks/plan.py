"""The cases with their peers, in the order of the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch

ORIGINALS = ("original-0.1", "original-0.005")
BATCHED = "batched-0.001"
RAY_SERVE_ALONE = ("rayserve-0", "rayserve-throughput-0")  # the number is batch_wait_timeout_s
RAY_SERVE = ("rayserve-0.005", "rayserve-throughput-0.005")
BARE = "ours-bare"  # without a batcher
PLAIN = "ours-plain"  # without the option that a case is about
EAGER = "ours-eager"  # a torch module as a predict function


@dataclass(frozen=True)
class Measurement:
    """One peer in one case: a script with arguments, run by the interpreter of the peer."""

    peer: str
    module: str
    arguments: tuple[str, ...]

    @property
    def environment(self) -> str:
        return self.peer.partition("-")[0]

    @property
    def needs_wrk(self) -> bool:
        return self.module in ("cases.web", "cases.monitoring") or "--served" in self.arguments


@dataclass(frozen=True)
class Case:
    """Measurements that are compared with each other. They run directly after each other."""

    name: str
    measurements: tuple[Measurement, ...]
    seconds: float = 1.5
    quick_seconds: float = 0.7
    once: bool = False  # the result is a count, so one run is enough
    at_once: bool = False  # the measurements may run in parallel
    seeded: bool = field(default=False)  # takes --seed, which differs in each run


def case(name: str, module: str, peers: Sequence[str], *arguments: str, **options: float) -> Case:
    measurements = tuple(Measurement(peer, module, arguments) for peer in peers)
    return Case(name, measurements, **options)  # type: ignore[arg-type]


def threads(model: str, clients: int, peers: Sequence[str]) -> Case:
    arguments = ("--model", model, "--clients", str(clients))
    return case(f"threads-{model}-{clients}", "cases.threads", peers, *arguments)


def processes(workers: int, model: str, clients: int) -> Case:
    """Client threads of a Streamer with a number of worker processes."""
    arguments = ("--workers", str(workers), "--model", model, "--clients", str(clients))
    name = f"processes-{workers}-{model}-{clients}"
    return case(name, "cases.threads", PROCESSES, *arguments)


def clients(workers: int, model: str) -> Case:
    """Forked client processes of one Streamer."""
    arguments = ("--workers", str(workers), "--model", model)
    return case(f"processes-{workers}-{model}-forked", "cases.clients", ("ours",), *arguments)


def arrays(model: str, kilobytes: int, clients: int) -> Case:
    """Large items, with one worker process."""
    arguments = ("--workers", "1", "--model", model, "--kilobytes", str(kilobytes))
    name = f"processes-arrays-{kilobytes}-{clients}"
    return case(name, "cases.arrays", PROCESSES, *arguments, "--clients", str(clients))


def web(name: str, measurements: Sequence[tuple[str, str, str, str]], seconds: float = 3) -> Case:
    """Make measurements from (peer, server, model, connections)."""
    return Case(
        name,
        tuple(
            Measurement(
                peer,
                "cases.web",
                ("--server", server, "--model", model, "--connections", connections),
            )
            for peer, server, model, connections in measurements
        ),
        seconds=seconds,
        quick_seconds=1,
    )


def redis(name: str, script: str, peers: Sequence[str], *arguments: str, **options: float) -> Case:
    """A Redis server on loopback with one worker, unless the arguments say otherwise."""
    return case(f"redis-{name}", script, peers, "--redis", "--workers", "1", *arguments, **options)


def ray(name: str, script: str, *arguments: str) -> Case:
    """A Ray cluster on this machine with one replica, unless the arguments say otherwise."""
    others = RAY_SERVE if "--clients" in arguments else RAY_SERVE_ALONE
    arguments = ("--ray", "--workers", "1", *arguments)
    return case(f"ray-{name}", script, ("ours", *others), *arguments, seconds=4)


def native(name: str, *arguments: str) -> Case:
    """An AOTInductor package in C++ threads, and the same module as a predict function."""
    return case(f"native-{name}", "cases.native", ("ours", EAGER), "--case", *arguments)


def slo(load: int, *where: str) -> Case:
    """Open traffic with a target for the latency."""
    name = f"slo-{'processes-' if where else ''}{load}"
    arguments = ("--load", str(load / 100), *where)
    return case(
        name, "cases.slo", ("ours", PLAIN), *arguments, seconds=8, quick_seconds=4, seeded=True
    )


PROCESSES = ("ours", *ORIGINALS)
MODEL_128 = ("--model", "model", "--clients", "128")
ORIGINAL = "original-0.005"
THREADED = ("ours", *ORIGINALS, BATCHED)

CASES: tuple[Case, ...] = (
    threads("noop", 1, THREADED),
    threads("noop", 16, THREADED),
    threads("noop", 128, THREADED),
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
    case("memory", "memory", ("ours",), once=True),
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
    redis("noop-1", "cases.threads", PROCESSES),
    redis("noop-128", "cases.threads", PROCESSES, "--clients", "128", seconds=4),
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
