"""The parts of the report about the CPUs and the threads of workers."""

from __future__ import annotations

from collections.abc import Sequence

from .._placement.machine import cpu_count, parse_cpus
from .parts import WorkerStats
from .stats import StreamerStats


def threads(stats: StreamerStats) -> str:
    """Return the end of the settings: how many threads compute a batch. Empty: it is not known."""
    if stats.intra_op_threads is None:
        return ""
    plural = "" if stats.intra_op_threads == 1 else "s"
    each = " each" if stats.workers > 1 else ""
    return f" with {stats.intra_op_threads} intra-op thread{plural}{each}"


def lines(workers: Sequence[WorkerStats]) -> list[str]:
    """Return the lines; none if the workers are not bound and have few threads."""
    found = []
    bound = [each for each in workers if each.cpus is not None]
    for each in bound:
        node = "" if each.numa_node is None else f" of node {each.numa_node}"
        found.append(f"  pid {each.pid} is bound to CPUs {each.cpus}{node}")
    if bound and len(bound) < len(workers):
        rest = len(workers) - len(bound)
        found.append(f"  {rest} more {'is' if rest == 1 else 'are'} not bound")
    return found + _too_many_threads(workers)


def _too_many_threads(workers: Sequence[WorkerStats]) -> list[str]:
    """Return the hint for threads that are more than the CPUs, or nothing.

    A worker with one thread may only wait for a service, and one with a GPU computes there.
    """
    texts = [str(each.intra_op_threads or each.threads) for each in workers]
    counts = [int(text) for text in texts if text.isdecimal()]
    on_cpu = all(each.device in (None, "") for each in workers)
    if not on_cpu or len(counts) < len(workers) or max(counts, default=0) < 2:
        return []
    cpus = cpu_count()
    if all(each.cpus is not None for each in workers):
        cpus = len({cpu for each in workers for cpu in parse_cpus(each.cpus or "")})
    if sum(counts) <= cpus:
        return []
    sharing = "1 worker" if len(workers) == 1 else f"{len(workers)} workers"
    return [
        f"  {sharing} with up to {max(counts)} threads share {cpus} CPUs: "
        f"threads_per_worker={max(1, cpus // len(workers))} gives each its own"
    ]
