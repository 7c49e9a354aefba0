"""The lines of ``streamer.explain()`` about tenants."""

from __future__ import annotations

from .stats import StreamerStats

FULL = 0.9
"""a tenant that has this part of ``max_queue_per_tenant`` in the queue fills it"""


def lines(stats: StreamerStats) -> list[str]:
    """Return a line that names the tenants that fill their part of the queue, if there are any."""
    most = stats.max_queue_per_tenant
    full = [name for name, items in stats.tenants.items() if most and items >= FULL * most]
    if not full:
        return []
    names = ", ".join(map(repr, full))
    return ["", f"part of the queue full (max_queue_per_tenant={most}) of tenants {names}"]
