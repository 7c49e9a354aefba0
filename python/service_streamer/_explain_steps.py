"""The sentences of ``streamer.explain()`` about the steps of a `StepModel`."""

from __future__ import annotations

from ._stats import StepStats

OFTEN = 0.75
"""the live items limit the throughput if a step has this part of ``batch_size`` on average"""


def summary(steps: StepStats) -> str:
    """Return one sentence: what the steps have done."""
    return (
        f"{steps.outputs:,} outputs of {steps.admitted:,} items in {steps.steps:,} steps, with "
        f"{steps.mean_live:.1f} live items on average. Now {steps.live:,} are "
        f"live, and {steps.paused:,} wait for the readers of their streams."
    )


def verdict(steps: StepStats, batch_size: int) -> str:
    """Return one sentence: what limits the number of live items, and what to change."""
    if steps.mean_live >= OFTEN * batch_size:
        return (
            f"batch_size={batch_size} is the limit: a step has {steps.mean_live:.1f} live items on "
            "average. Raise it if a step with more items takes little more time."
        )
    return (
        f"The number of requests is the limit: a step has {steps.mean_live:.1f} live items on "
        f"average, and could have {batch_size}. Items enter at the next step."
    )
