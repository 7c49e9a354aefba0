"""Fits the costs of clients and workers to measurements of the real system."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping

import numpy

from .costs import Cost, Costs, ServerCosts

Measured = Mapping[str, float]
PROCESSES = ("client", "server", "gateway", "model")
RAY_PROCESSES = ("client", "server", "gateway")
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


def of_ray(measured: Iterable[Measured]) -> Costs:
    """Return the costs of a queue in an owner actor, without those of messages on the way.

    All calls of a process cost the same. The owner has three: a client brings requests, a client
    asks for answers, and a replica gets a batch and returns the outputs.

    Args:
        measured: what `real_ray.measure` has returned.
    """
    cells = list(measured)
    busy = [cell for cell in cells if sum(cell[name] for name in RAY_PROCESSES) > BUSY]
    client = _fit(busy, "client", ("puts", "takes"))
    owner = _fit(busy, "server", ("puts", "takes", "batches"))
    replica = _fit(busy, "gateway", ("batches",))
    half = Cost(replica.call / 2, replica.each)  # one call brings a batch and returns the outputs
    share = owner.each / 2  # of the four things that the owner does with a request
    server = ServerCosts(
        append=Cost(owner.call, share),
        fetch=Cost(owner.call, share),
        finish=Cost(each=share),
        reply=Cost(each=share),
        read=owner.call,
        one_each=False,
        prefetch=False,
    )
    return Costs(server, client, client, half, half, Cost())


def line(points: Iterable[tuple[float, float]]) -> Cost:
    """Fit seconds = call + number × each; relative errors count."""  # noqa: RUF002
    number, seconds = numpy.array(list(points)).T
    each, call = numpy.polyfit(number, seconds, 1, w=1 / seconds)
    return Cost(max(0.0, float(call)), max(0.0, float(each)))
