"""The last sentence of ``streamer.explain()``: what limits the batch size, and what to change."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable

from . import explain_groups, explain_steps
from .formats import count, duration
from .stats import EventStats, RecentStats, StreamerStats

ENOUGH_BATCHES = 50
"""the report is about the last minute if at least this number of batches ran in it"""

FEWEST = 20
"""batches, steps or requests from which on the report says what limits them"""

MANY_FAILURES = 0.05
"""the share of requests that fail, or whose batch fails, from which on the report begins with it"""

# The model counts as busy if requests queue for longer than this part of its service time. A
# request that arrives at a random moment of a run queues for half of the run on average.
BUSY = 0.25

ALWAYS = 0.9
"""the part of the time in which workers have a batch if they count as always busy"""

PROPORTIONAL = 0.2
"""the share of batches that took only a part of the queue, if time is proportional to items"""

# Seconds per batch. The adaptive policy does not wait for callers of a faster model. The number of
# requests that wait then tells when threads ran, not how many callers there are.
FAST = 4e-4


def period(stats: StreamerStats) -> EventStats:
    """Return what a report is about: the last minute, or all if too few batches ran in it."""
    return stats.last_minute if stats.last_minute.batches >= ENOUGH_BATCHES else stats


def verdict(stats: StreamerStats, window: EventStats | None = None) -> str:
    """Return what limits the batch size, and what to change; if many requests fail, that first.

    Args:
        stats: of the streamer.
        window: what the sentence is about, if enough batches ran in it. None: `period`.
    """
    if window is None or window.batches < ENOUGH_BATCHES:
        window = period(stats)
    evidence = Evidence(stats, window)
    return " ".join(filter(None, (failures(window), limit(evidence))))


def failures(recent: EventStats) -> str | None:
    """Return a sentence if many requests fail, or run again because another one fails."""
    ended = recent.completed + recent.failed
    parts = []
    if recent.failed > MANY_FAILURES * ended:
        parts.append(f"{recent.failed:,} failed")
    if recent.isolated > MANY_FAILURES * ended:
        parts.append(f"{recent.isolated:,} were answered although their batch raised")
    if not parts:
        return None
    return (
        f"Failures come first: of {count(ended, 'request')}, {' and '.join(parts)}. "
        "Find their cause before you tune anything else."
    )


def too_little(shown: str) -> str:
    """Return the sentence in place of a limit. `shown`: what there is, with its number."""
    return f"Only {shown} so far: too little to judge by. Look again under load, after {FEWEST}."


def in_notebook() -> bool:
    """Return True in IPython, also that of a notebook: there is no web server."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return shell is not None and shell() is not None


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What the sentences are about."""

    stats: StreamerStats
    recent: EventStats
    """the same, or those of the last minute"""

    def share(self, *reasons: str) -> float:
        """Return the share of the batches that closed for one of these reasons."""
        return sum(self.recent.close_reasons.get(each, 0) for each in reasons) / self.recent.batches

    @property
    def service(self) -> float:
        """Mean seconds per batch."""
        return self.recent.service_time.mean

    @property
    def queues(self) -> bool:
        """True if the model is busy when requests arrive."""
        return self.recent.queue_time.mean > BUSY * self.service

    @property
    def busy(self) -> float:
        """The part of the time in which the workers have a batch."""
        recent = self.recent
        seconds = recent.seconds if isinstance(recent, RecentStats) else self.stats.uptime
        available = seconds * self.stats.workers
        return min(1.0, recent.service_time.total / available) if available else 0.0

    @property
    def is_fast(self) -> bool:
        """True if batches do not wait because the model is so fast."""
        return self.service < FAST and self.share("idle") >= 0.5

    @property
    def has_few_callers(self) -> bool:
        """True if all requests that ever waited at the same time do not fill a batch."""
        requests = max(self.recent.queue_time.count, 1)
        items = self.stats.peak_requests * self.recent.items / requests
        return items < self.stats.batch_size and not self.is_fast

    @property
    def most(self) -> str:
        """The most requests that waited, as text."""
        return f"at most {count(self.stats.peak_requests, 'request')} waited at the same time"


def limit(evidence: Evidence) -> str:
    """Return the sentence of the first row that applies."""
    found = (sentence for row in ROWS if (sentence := row(evidence)) is not None)
    return next(found)


# --------------------------------------- the rows: each returns its sentence, or None


def no_batch(of: Evidence) -> str | None:
    return None if of.stats.batches else "No batch has run yet: nothing to explain."


def few_steps(of: Evidence) -> str | None:
    if of.stats.steps is None or not 0 < of.stats.steps.steps < FEWEST:
        return None  # those of worker processes are not counted
    return too_little(count(of.stats.steps.steps, "step"))


def steps(of: Evidence) -> str | None:
    if of.stats.steps is None:
        return None
    heavy = of.queues and of.recent.weight > 0  # else weights do not count
    return explain_steps.verdict(of.stats.steps, of.stats.batch_size, of.stats.workers, heavy)


def low_slo(of: Evidence) -> str | None:
    slo = of.stats.slo
    if not slo or of.stats.least_service <= slo:
        return None
    return f"slo={duration(slo)} is below the time of the model for one item: raise it."


def refusing_slo(of: Evidence) -> str | None:
    recent, slo = of.recent, of.stats.slo
    decided = recent.rejected + recent.completed
    if not slo or decided < FEWEST or recent.rejected < 0.01 * decided:
        return None
    part = f"{recent.rejected / decided:.0%} of the requests were refused"
    return f"slo={duration(slo)} is the limit: {part}. Add workers, or raise the slo."


def few_batches(of: Evidence) -> str | None:
    if of.recent.batches >= FEWEST:
        return None
    return too_little(count(of.recent.batches, "batch", "batches"))


def single_items(of: Evidence) -> str | None:
    if of.stats.batch_size != 1:
        return None
    return "batch_size=1 is the limit: raise it if larger batches take less time per item."


def full_batches(of: Evidence) -> str | None:
    if (full := of.share("full")) < 0.5:
        return None
    return (
        f"batch_size={of.stats.batch_size} is the limit: {full:.0%} of the batches are full. "
        "Raise it if larger batches take less time per item."
    )


def memory(of: Evidence) -> str | None:
    if (share := of.share("memory")) < 0.5:
        return None
    return (
        f"The memory is the limit: {share:.0%} of the batches are as large as it allows. Lower "
        "batch_size or max_weight to that size, or give the model more memory."
    )


def proportional_time(of: Evidence) -> str | None:
    if of.share("share") < (PROPORTIONAL if of.has_few_callers else 0.5):
        return None
    split = "the queue is split among idle workers"
    if of.stats.workers == 1:
        split = "the worker takes half of the queue at a time"
    return (
        f"The model is the limit: its time is proportional to the number of items, so {split}. "
        "Larger batches would not be faster."
    )


def busy_model(of: Evidence) -> str | None:
    if not of.has_few_callers or of.busy < ALWAYS:
        return None
    workers = "worker is" if of.stats.workers == 1 else "workers are"
    return (
        f"The model is the limit: its {workers} busy for {of.busy:.0%} of the time. Add workers "
        "that have cores or GPUs of their own. More callers help only if larger batches take less "
        "time per item."
    )


def few_callers(of: Evidence) -> str | None:
    if not of.has_few_callers:
        return None
    remedy = (
        "If clients send more at once, a limit of the web server holds them back, such as its "
        "number of threads: raise it."
    )
    if in_notebook():
        remedy = "Send more at once: a longer list, map(), or submit() before the first result()."
    return (
        f"The number of callers is the limit: {of.most}, too few to fill "
        f"batch_size={of.stats.batch_size}. {remedy}"
    )


def groups(of: Evidence) -> str | None:
    return explain_groups.verdict(of.recent, of.stats.buckets)


def latency(of: Evidence) -> str | None:
    if (share := of.share("max_latency", "window")) < 0.5:
        return None
    hint = ' or use policy="adaptive"' if of.stats.policy == "window" else ""
    return (
        f"max_latency={duration(of.stats.max_latency)} is the limit: it closed {share:.0%} of the "
        f"batches. Raise it for larger batches{hint}."
    )


def returning_callers(of: Evidence) -> str | None:
    if of.share("returned", "linger") < 0.5:
        return None
    return (
        "The number of concurrent callers is the limit: batches wait only for callers that are "
        "about to send their next request. More concurrent callers give larger batches."
    )


def priorities(of: Evidence) -> str | None:
    if of.share("priority") < 0.5:
        return None
    return (
        "Requests with a raised priority are the limit: they do not wait for others. "
        "Use priority=0 for requests that are not urgent."
    )


def closing(of: Evidence) -> str | None:
    if of.share("drain") < 0.5:
        return None
    return "Most batches ran while the streamer was closing, when batches do not wait."


def fast_model(of: Evidence) -> str | None:
    if not of.is_fast:
        return None
    return (
        f"The load is the limit: the model is fast ({duration(of.service)} per batch), and "
        f"{of.most}. More load gives larger batches."
    )


def arrivals(of: Evidence) -> str | None:
    if not of.queues:
        return None
    return (
        "The load is the limit: the model is busy when requests arrive, and each batch takes "
        "all requests that arrived during the previous run "
        f"({duration(of.service)} on average). More load gives larger batches."
    )


def greedy_policy(of: Evidence) -> str | None:
    if of.stats.policy != "greedy":
        return None
    return (
        'The load is the limit: with policy="greedy" an idle worker never waits. '
        'policy="adaptive" waits for callers that are about to send their next request.'
    )


def idle_workers(of: Evidence) -> str:
    return (
        "The load is the limit: a worker is idle when requests arrive, so waiting would only add "
        "latency. Batches grow when the model is busy."
    )


ROWS: tuple[Callable[[Evidence], str | None], ...] = (
    no_batch,
    few_steps,
    steps,
    low_slo,
    refusing_slo,
    few_batches,
    single_items,
    full_batches,
    memory,
    proportional_time,
    busy_model,
    few_callers,
    groups,
    latency,
    returning_callers,
    priorities,
    closing,
    fast_model,
    arrivals,
    greedy_policy,
    idle_workers,
)
"""the first row that applies is the limit. The last one always applies"""
