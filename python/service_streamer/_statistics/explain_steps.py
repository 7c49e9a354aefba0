"""The sentences of ``streamer.explain()`` about the steps of a `StepModel`."""

from __future__ import annotations

from .formats import count
from .parts import StepStats

OFTEN = 0.75
"""the live items limit the throughput if a step has this part of ``batch_size`` on average"""


def summary(steps: StepStats) -> str:
    """Return one sentence: what the steps have done."""
    if not steps.steps:
        return f"{count(steps.admitted, 'item')} so far; {steps.live:,} are live now."
    return (
        f"{count(steps.outputs, 'output')} of {count(steps.admitted, 'item')} in "
        f"{count(steps.steps, 'step')}, with "
        f"{steps.mean_live:.1f} live items on average. Now {steps.live:,} are live, and "
        f"{steps.paused:,} wait for the readers of their streams."
    )


def verdict(steps: StepStats, batch_size: int, workers: int, heavy: bool) -> str:
    """Return one sentence: what limits the number of live items, and what to change.

    Args:
        steps: of all workers.
        batch_size, workers: of the streamer.
        heavy: there is a ``max_weight``, and items wait for long before they enter.
    """
    places = batch_size * workers
    live, when = (steps.mean_live, "on average") if steps.steps else (steps.live, "now")
    if live >= OFTEN * places:
        return (
            f"batch_size={batch_size} is the limit: {live:.0f} items are live {when}. Raise it if "
            "a step with more items takes little more time."
        )
    if heavy:
        return (
            f"max_weight is the limit: {live:.1f} items are live {when}, and others wait although "
            f"batch_size={batch_size} allows {places}. Raise it if there is memory for more."
        )
    return (
        f"The number of requests is the limit: {live:.1f} items are live {when}, and {places} "
        "could be. Items enter at the next step."
    )
