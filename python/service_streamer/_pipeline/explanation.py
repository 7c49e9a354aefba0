"""The statistics of a pipeline, and the report that names the stage that limits it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .._base.system import usable_cpus
from .._processes.streamer import Streamer
from .._statistics.explain import troubles
from .._statistics.formats import count, duration
from .._statistics.stats import OUTCOMES, EventStats, StreamerStats
from .._statistics.verdict import FEWEST, failures, too_little
from .._streamers.streamer import BaseStreamer
from .._threads.threaded import ThreadedStreamer

if TYPE_CHECKING:
    from .._streamers.notebook import Explanation

BUSY = 0.7
"""the least `Load.strain` of a stage that limits the pipeline"""

ALWAYS = 0.9
"""the least `Load.busy` of a stage for which more load may be too much"""

QUEUED = 0.25
"""the least time before the first stage, as a part of that in the stages, of waiting requests"""

ENOUGH_BATCHES = FEWEST
"""the report is about the last minute if a stage ran at least this number of batches in it"""

NOTE = "requests: in the stage now; batch, queue, service: means; items/s: if always busy"

COLUMNS = ("workers", "busy", "requests", "batch", "queue", "service", "items/s")


@dataclasses.dataclass(frozen=True)
class PipelineStats(StreamerStats):
    """The statistics of a `Pipeline`. A part of a request counts as one item, and one batch.

    `queue_time` is the time before the first stage, and `service_time` the time in the stages.
    """

    stages: Mapping[str, StreamerStats] = dataclasses.field(default_factory=dict)
    """the statistics of the streamer of each stage"""

    def _repr_html_(self) -> str:
        return html("", self, loads_of({}, self))


@dataclasses.dataclass(frozen=True)
class Load:
    """How busy a stage was, lately."""

    name: str
    streamer: BaseStreamer | None
    """the streamer of the stage; None: not known"""
    stats: StreamerStats
    recent: EventStats
    seconds: float
    """the time that `recent` is about"""

    @property
    def known(self) -> bool:
        """False if its batches are not counted here, as those of a `RedisStreamer`."""
        return self.recent.batches > 0 and self.seconds > 0

    @property
    def batch_items(self) -> float:
        """The mean number of items in a batch, or of live items of a `StepModel` in a worker."""
        if self.stats.steps is not None:
            return self.busy * self.stats.batch_size
        return self.recent.mean_batch_size

    @property
    def places(self) -> int:
        """The number of batches that its workers can have at the same time."""
        steps = self.stats.steps is not None  # a batch is one item then
        return self.stats.workers * (self.stats.batch_size if steps else 1)

    @property
    def busy(self) -> float:
        """The part of the time that its `places` had a batch; 0 if it is not known."""
        if not self.known:
            return 0.0
        # A worker process may already have its next batch, which counts as service time too.
        return min(1.0, self.recent.service_time.total / (self.seconds * self.places))

    @property
    def strain(self) -> float:
        """How near the stage is to its limit: at 1 its workers are always busy with full batches.

        A busy worker whose batches are not full can do more: batches grow with the load.
        """
        if self.stats.steps is not None:
            return self.busy
        return self.busy * min(1.0, self.batch_items / self.stats.batch_size)

    @property
    def capacity(self) -> float:
        """Items per second that its workers can do if they are always busy."""
        total = self.recent.service_time.total
        return self.recent.items * self.places / total if total else 0.0

    @property
    def requests(self) -> int:
        """The number of pieces of requests that are in the stage now."""
        ended: int = self.stats.broker_errors
        ended += sum(getattr(self.stats, each) for each in OUTCOMES if each != "rejected")
        return max(0, self.stats.submitted - ended)

    def cells(self) -> list[str]:
        """Return the cells below `COLUMNS`."""
        if not self.known:
            return ["-", "-", f"{self.requests:,}", "-", "-", "-", "-"]
        recent = self.recent
        return [
            str(self.stats.workers),
            f"{self.busy:.0%}",
            f"{self.requests:,}",
            f"{self.batch_items:.1f}",
            duration(recent.queue_time.mean) if recent.queue_time.count else "-",
            duration(recent.service_time.mean),
            f"{self.capacity:,.0f}",
        ]


def loads_of(stages: Mapping[str, BaseStreamer], stats: PipelineStats) -> list[Load]:
    """Return the loads of all stages, in the same time.

    Args:
        stages: the streamers by name; may be incomplete.
        stats: of the pipeline.
    """
    enough = any(each.last_minute.batches >= ENOUGH_BATCHES for each in stats.stages.values())
    loads = []
    for name, each in stats.stages.items():
        minute = each.last_minute
        recent = (minute, minute.seconds) if enough else (each, each.uptime)
        loads.append(Load(name, stages.get(name), each, *recent))
    return loads


def report(name: str, stats: PipelineStats, stages: Mapping[str, BaseStreamer]) -> Explanation:
    """Return what ``Pipeline.explain()`` tells, as text and for notebooks.

    Args:
        name: of the pipeline.
        stats: its statistics.
        stages: their streamers by name.
    """
    from .._streamers.notebook import Explanation

    loads = loads_of(stages, stats)
    shown = html(name, stats, loads, verdict(stats, loads))
    return Explanation.of(explain(name, stats, loads), lambda: shown)


def explain(name: str, stats: PipelineStats, loads: Sequence[Load]) -> str:
    """Return the text of ``Pipeline.explain()``.

    Args:
        name: of the pipeline.
        stats: its statistics.
        loads: of its stages.
    """
    if not stats.submitted and not any(load.known for load in loads):
        return f"{name}\nNo request has come yet: nothing to explain."
    width = max(len("stage"), *(len(load.name) for load in loads)) + 2
    table = [
        f"{label:<{width}}" + "".join(f"{cell:>10}" for cell in cells)
        for label, *cells in _rows(loads)
    ]
    lines = [*_summary(stats, loads), "", *table, NOTE, *troubles(stats)]
    return "\n".join([name, *lines, "", verdict(stats, loads)])


def html(name: str, stats: PipelineStats, loads: Sequence[Load], sentence: str = "") -> str:
    """Return what a notebook shows.

    Args:
        name: the heading.
        stats: of the pipeline.
        loads: of its stages.
        sentence: the verdict. Empty: none.
    """
    from .._streamers.notebook import of_table  # left to notebooks

    lines = [*_summary(stats, loads), *filter(None, troubles(stats))]
    return of_table(name, lines, _rows(loads), NOTE, sentence)


def verdict(stats: PipelineStats, loads: Sequence[Load], cores: int | None = None) -> str:
    """Return which stage limits the pipeline, and what to change; many failures come first.

    Args:
        stats: of the pipeline.
        loads: of its stages.
        cores: that this process may use. None: those that it may use now.
    """
    cores = len(usable_cpus()) if cores is None else cores
    return " ".join(filter(None, (failures(_recent(stats, loads)), _limit(stats, loads, cores))))


def _limit(stats: PipelineStats, loads: Sequence[Load], cores: int) -> str:
    if not any(load.known or load.requests for load in loads):
        return "No request has come yet: nothing to explain."
    if max(stats.submitted, *(load.recent.batches for load in loads)) < FEWEST:
        return too_little(count(stats.submitted, "request"))
    first = max(loads, key=lambda load: load.strain)
    if first.strain < BUSY:
        waiting = max(loads, key=lambda load: load.requests)
        if not waiting.known and waiting.requests > sum(load.requests for load in loads) / 2:
            return (
                f"The stage {waiting.name} is the limit: it has most of the requests, and no "
                "other stage is at its limit. Start more workers for it."
            )
        if _is_full(stats, loads):
            return (
                f"max_in_flight={stats.workers} is the limit: requests wait before the first "
                "stage, but no stage is always busy with full batches. Raise it for larger batches."
            )
        return _of_the_load(max(loads, key=lambda load: load.busy))
    others = [load.busy for load in loads if load is not first]
    less = f", those of the others for at most {max(others):.0%}" if others else ""
    found = (
        f"The stage {first.name} is the limit: its workers are busy for {first.busy:.0%} of the "
        f"time{less}."
    )
    active = sum(load.busy * load.stats.workers for load in loads)
    if active >= 0.9 * cores and first.stats.workers >= cores:
        return (
            f"{found} {active:.1f} workers are busy at the same time on {count(cores, 'core')}: if "
            "they compute, more of them do not help."
        )
    return f"{found} {_remedy(first)}"


def _summary(stats: PipelineStats, loads: Sequence[Load]) -> list[str]:
    recent = _recent(stats, loads)
    return [
        f"{count(stats.submitted, 'request')} so far; {stats.queued_requests:,} wait before "
        f"the first stage; {count(stats.running_batches, 'part')} of requests in the stages",
        f"mean times: {duration(recent.queue_time.mean)} before the first stage, "
        f"{duration(recent.service_time.mean)} in the stages",
    ]


def _rows(loads: Sequence[Load]) -> list[list[str]]:
    """Return the headings and the rows of the table of stages."""
    return [["stage", *COLUMNS], *([load.name, *load.cells()] for load in loads)]


def _recent(stats: PipelineStats, loads: Sequence[Load]) -> EventStats:
    """Return the statistics of the pipeline in the time of the loads."""
    return stats if loads[0].recent is loads[0].stats else stats.last_minute


def _is_full(stats: PipelineStats, loads: Sequence[Load]) -> bool:
    """Return True if requests wait because `max_in_flight` items are in the stages."""
    recent = _recent(stats, loads)
    # Little's law: the mean number of items in the stages is their rate times their time there.
    rate = max((load.recent.items / load.seconds for load in loads if load.known), default=0.0)
    in_flight = rate * recent.service_time.mean
    waits = recent.queue_time.mean > QUEUED * recent.service_time.mean
    return waits and in_flight > BUSY * stats.workers


def _of_the_load(nearest: Load) -> str:
    """Return what to do if no stage is certain to be the limit.

    Args:
        nearest: the load of the stage with the busiest workers.
    """
    if nearest.busy < ALWAYS:
        return (
            "The load is the limit: no stage is always busy with full batches. More requests at "
            f"the same time raise the throughput. The stage {nearest.name} is the nearest to its "
            "limit."
        )
    return (
        f"The load or the stage {nearest.name} is the limit: its workers are busy for "
        f"{nearest.busy:.0%} of the time, with {nearest.batch_items:.1f} items of "
        f"{nearest.stats.batch_size} in a batch. More requests at the same time raise the "
        "throughput if larger batches take less time per item. Otherwise the stage is the limit. "
        f"{_remedy(nearest)}"
    )


def _remedy(load: Load) -> str:
    if load.stats.steps is not None:
        return "A larger batch_size helps if a step with more items takes little more time."
    if isinstance(load.streamer, Streamer):
        return "More workers raise the throughput, if they have cores or GPUs of their own."
    if not isinstance(load.streamer, ThreadedStreamer):
        return "Start more workers for it."
    if load.streamer.is_native:
        return "A larger batch_size, or more workers of the NativeModel, may raise the throughput."
    return (
        "More workers raise the throughput if it releases the GIL. If it does not, use "
        "processes=True."
    )
