"""What a case is, and how cases of a kind are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

ORIGINALS = ("original-0.1", "original-0.005")
BATCHED = "batched-0.001"
RAY_SERVE_ALONE = ("rayserve-0", "rayserve-throughput-0")  # the number is batch_wait_timeout_s
RAY_SERVE = ("rayserve-0.005", "rayserve-throughput-0.005")
BARE = "ours-bare"  # without a batcher
BROKER = "ours-broker"  # the commands of ours to Redis, without callers, batches and models
PLAIN = "ours-plain"  # without the option that a case is about
EAGER = "ours-eager"  # a torch module as a predict function
PROCESSES = ("ours", *ORIGINALS)
MODEL_128 = ("--model", "model", "--clients", "128")
ORIGINAL = "original-0.005"
THREADED = ("ours", *ORIGINALS, BATCHED)


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


def with_broker(measured: Case) -> Case:
    """Add what the broker alone can do with as many clients."""
    arguments = measured.measurements[0].arguments
    alone = Measurement(BROKER, "cases.redis_broker", arguments)
    return replace(measured, measurements=(*measured.measurements, alone))


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
