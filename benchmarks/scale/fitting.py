"""Fits the costs of clients and workers to measurements of the real system."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping

import numpy

from .costs import Cost, Costs, ServerCosts

Measured = Mapping[str, float]
PROCESSES = ("client", "server", "gateway", "model")
BUSY = 1.0  # cores in use; below that, waking up costs more than it does under load


def fit(server: ServerCosts, measured: Iterable[Measured]) -> Costs:
    """Return the costs of all processes, without those of messages on the way.

    The costs of a process are the same in both directions, because measurements have the sum.

    Args:
        server: the costs of the server.
        measured: what `real.measure` has returned.
    """
    cells = list(measured)
    busy = [cell for cell in cells if sum(cell[name] for name in PROCESSES) > BUSY]
    client = _fit(busy, "client", ("flushes", "reads"))
    gateway = _fit(busy, "gateway", ("fetches", "finishes"))
    model = _fit(busy, "model", ("finishes",))
    return Costs(
        _scaled(server, busy),
        send=client,
        receive=client,
        take=gateway,
        answer=gateway,
        model=Cost(model.call, 2 * model.each),
    )


def _scaled(server: ServerCosts, cells: list[Measured]) -> ServerCosts:
    """Return the costs as they are while clients and workers use the same caches."""
    ratios = []
    for cell in cells:
        alone = cell["flushes"] * server.append.call + cell["fetches"] * server.fetch.call
        alone += cell["finishes"] * server.finish.call
        alone += cell["reads"] * (server.read + server.reply.call)
        alone += cell["requests"] * (server.append.each + server.fetch.each + server.finish.each)
        ratios.append(cell["server"] / alone)
    factor = statistics.median(ratios)
    return dataclasses.replace(
        server,
        **{
            name: getattr(server, name).times(factor)
            for name in ("append", "fetch", "finish", "reply")
        },
        read=factor * server.read,
    )


def _fit(cells: list[Measured], used: str, messages: tuple[str, ...]) -> Cost:
    """Fit processor time = messages × call + requests × 2 × each; relative errors count."""  # noqa: RUF002
    seconds = numpy.array([cell[used] for cell in cells])
    rows = [[sum(cell[name] for name in messages), 2 * cell["requests"]] for cell in cells]
    matrix = numpy.array(rows) / seconds[:, None]
    (call, each), *_ = numpy.linalg.lstsq(matrix, numpy.ones(len(cells)), rcond=None)
    if min(call, each) < 0:
        raise ValueError(f"the costs of a {used} cannot be told apart: measure again")
    return Cost(float(call), float(each))


def of_ray(points: Mapping[str, Measured], hop: float) -> Costs:
    """Return the costs of a queue in an owner actor, from what `ray_costs.py` has measured.

    A client's call carries requests and returns with the answers. A worker's call carries the
    answers of a batch and returns with the next one. So each request is in two calls of the actor.
    It has no rounds of workers, because Ray itself watches them.
    """
    small = {int(name.split()[0]): each for name, each in points.items() if name.endswith(" 100")}

    def cost(who: str) -> Cost:
        rows = [(count, each[who]) for count, each in small.items()]
        return line(rows)

    actor, caller = cost("actor"), cost("caller")
    sized = {
        int(name.split()[2]): each["actor"]
        for name, each in points.items()
        if name.startswith("16 ")
    }
    byte = line([(16 * size, seconds) for size, seconds in sized.items()]).each
    call = Cost(actor.call, max(0.0, actor.each - 100 * byte), byte)
    nothing = Cost()
    server = ServerCosts(append=call, fetch=call, finish=nothing, reply=nothing, one_each=False)
    half = Cost(caller.call / 2, caller.each / 2)
    return Costs(server, half, half, half, half, nothing, hop)


def line(points: Iterable[tuple[float, float]]) -> Cost:
    """Fit seconds = call + number × each; relative errors count."""  # noqa: RUF002
    number, seconds = numpy.array(list(points)).T
    each, call = numpy.polyfit(number, seconds, 1, w=1 / seconds)
    return Cost(max(0.0, float(call)), max(0.0, float(each)))
