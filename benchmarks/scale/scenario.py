"""A scenario: clients, servers and workers; and what a simulation of it says."""

from __future__ import annotations

import dataclasses
import random

from .client import ClosedClient, Latencies, OpenClient
from .costs import Costs
from .events import Cores, Loop, Thread
from .queue_server import Queue, QueueServer
from .worker import Model, Worker


@dataclasses.dataclass(frozen=True)
class Scenario:
    """What is simulated.

    Attributes:
        clients: the number of client processes.
        workers: the number of worker machines.
        model: what each process of a worker runs.
        processes: of each worker.
        callers: of each client, which ask again when they have an answer. 0: `rate` counts.
        rate: requests per second of all clients together, which come at random.
        shards: servers of one queue. Each client uses one, each worker all.
        prefixes: queues of their own, each with its part of the clients, servers and workers.
        size: bytes of a request and of an answer.
        cores: of the one machine on which everything runs. None: no thread waits for a core.
    """

    clients: int
    workers: int
    model: Model
    processes: int = 1
    callers: int = 0
    rate: float = 0.0
    shards: int = 1
    prefixes: int = 1
    size: float = 100.0
    cores: int | None = None


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a simulation says of the time after the warm-up.

    Attributes:
        per_s: answers per second.
        p50, p99: latencies in seconds.
        batch: mean items per batch.
        server, client, gateway: the share of the time for which the busiest one is busy.
    """

    per_s: float
    p50: float
    p99: float
    batch: float
    server: float
    client: float
    gateway: float


def simulate(
    scenario: Scenario, costs: Costs, seconds: float, warm_up: float = 0.1, seed: int = 1
) -> Outcome:
    """Simulate a scenario. The same arguments give the same outcome.

    Args:
        scenario: what is simulated.
        costs: of the back end.
        seconds: that are simulated after the warm-up.
        warm_up: seconds that do not count.
        seed: of the arrivals.
    """
    loop = Loop()
    cores = Cores(loop) if scenario.cores is None else Cores(loop, scenario.cores)
    latencies = Latencies(warm_up)
    threads: dict[str, list[Thread]] = {"server": [], "client": [], "gateway": []}
    workers: list[Worker] = []
    generator = random.Random(seed)

    def thread(kind: str) -> Thread:
        threads[kind].append(Thread(cores))
        return threads[kind][-1]

    def queue(clients: int, machines: int, rate: float) -> None:
        shared = Queue(machines)
        of_server = (costs.server, scenario.size, costs.hop, shared)
        servers = [QueueServer(loop, thread("server"), *of_server) for _ in range(scenario.shards)]
        for _ in range(machines):
            processes = [Thread(cores) for _ in range(scenario.processes)]
            gateway, engine = thread("gateway"), Thread(cores)
            of_worker = (processes, scenario.model, costs, scenario.size, shared)
            workers.append(Worker(loop, servers, gateway, engine, *of_worker))
        for number in range(clients):
            server = servers[number % len(servers)]
            of_client = (loop, server, thread("client"), costs, scenario.size, latencies)
            if scenario.callers:
                ClosedClient(*of_client).start(scenario.callers)
            else:
                OpenClient(*of_client).start(rate / clients, generator)

    parts = scenario.prefixes
    for part in range(parts):
        machines = scenario.workers // parts + (part < scenario.workers % parts)
        queue(scenario.clients // parts, machines, scenario.rate / parts)
    loop.run(warm_up)
    before = {kind: [each.busy for each in all_of] for kind, all_of in threads.items()}
    items, batches = (sum(getattr(each, name) for each in workers) for name in ("items", "batches"))
    loop.run(warm_up + seconds)
    busiest = {
        kind: max(each.busy - was for each, was in zip(all_of, before[kind], strict=True)) / seconds
        for kind, all_of in threads.items()
    }
    done = sum(each.items for each in workers) - items
    return Outcome(
        per_s=latencies.count / seconds,
        p50=latencies.quantile(0.5),
        p99=latencies.quantile(0.99),
        batch=done / max(1, sum(each.batches for each in workers) - batches),
        **busiest,
    )
