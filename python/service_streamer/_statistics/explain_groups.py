"""The sentences of ``streamer.explain()`` about keys, weights and buckets."""

from __future__ import annotations

from .stats import EventStats

MUCH_PADDING = 0.2
"""the report advises ``bucket`` from this share of padding on"""


def lines(recent: EventStats, buckets: int) -> list[str]:
    """Return the sentences below the table of close reasons."""
    sentences = []
    if recent.other_keys:
        batches = f"{recent.other_keys:,} {'batch' if recent.other_keys == 1 else 'batches'}"
        others = "keys or buckets" if buckets else "keys"
        sentences.append(
            f"{batches} could have been larger, but all other queued items had other {others}"
        )
    if recent.padding > 0:
        hint = ""
        if buckets:
            hint = f", with {buckets} buckets"
        elif recent.padding >= MUCH_PADDING:
            hint = ": bucket= would put items of similar weight together"
        sentences.append(f"{recent.padding:.0%} of the weight of batches is padding{hint}")
    return sentences


def verdict(recent: EventStats, buckets: int) -> str | None:
    """Return one sentence if keys or buckets limit the batch size, and what to change."""
    if recent.other_keys < 0.5 * recent.batches:
        return None
    when = f"when {recent.other_keys / recent.batches:.0%} of the batches closed"
    if buckets:
        return (
            f"The buckets are the limit: {when}, all other queued items had other keys or buckets. "
            "To pad them would have taken longer than a batch of their own."
        )
    return (
        f"The keys are the limit: {when}, all other queued items had other keys. Fewer different "
        "keys give larger batches."
    )
