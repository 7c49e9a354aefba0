"""What happened to each request and each batch, from the events of a recording."""

from __future__ import annotations

import dataclasses

from .events import Event, Kind, Recording

_TIMES = {Kind.DECODED: "decode", Kind.PREDICTED: "predict", Kind.ENCODED: "encode"}
_PHASES = {
    Kind.COLLATED: "collate",
    Kind.COPIED_IN: "copy in",
    Kind.COMPUTED: "compute",
    Kind.COPIED_OUT: "copy out",
    Kind.WAITED: "wait",
}


@dataclasses.dataclass(slots=True)
class Request:
    """One call of ``predict`` or ``submit``."""

    number: int
    begin: int
    items: int
    priority: int
    end: int = 0
    outcome: str = ""
    """empty: it had not ended when the recording ended"""


@dataclasses.dataclass(slots=True)
class Cut:
    """A batch as it was taken out of the queue."""

    items: int
    reason: str
    parts: list[tuple[Request, int]] = dataclasses.field(default_factory=list)
    """the requests that arrived during the recording, and their items in the batch"""
    requests: int = 0
    runs: int = 0


@dataclasses.dataclass(slots=True)
class BatchRun:
    """One run of a batch, or of a part of a batch that raised, by one worker.

    Times are in nanoseconds of ``time.monotonic_ns()``.

    Example:
        >>> streamer = ThreadedStreamer(sorted, batch_size=64)
        >>> view = extend.view_of(streamer)
        >>> (run,) = view.batches(1, lambda seconds: len(streamer.predict([2, 1])) > 2)
        >>> run.items, run.outcome, run.end > run.begin
        (2, 'answered', True)
    """

    batch: int
    """the number of the batch"""
    worker: int
    """the id of the thread, or of the process"""
    begin: int
    items: int
    cut: Cut | None
    """the cut of the batch. None: a part of a failed batch, or one that was cut before the
    recording"""
    again: bool
    """the batch, or the batch of which this is a part, has run before"""
    end: int = 0
    outcome: str = ""
    """such as "answered" or "failed"; empty: it had not ended when the recording ended"""
    times: dict[str, int] = dataclasses.field(default_factory=dict)
    """decode, predict and encode in a worker process, in nanoseconds"""
    phases: list[tuple[str, int, int]] = dataclasses.field(default_factory=list)
    """the phases of a native model, with begin and end, in order"""


class History:
    """The requests, the runs and the load of one recording.

    Requests that arrived, and runs that began, before the first event are left out.
    """

    def __init__(self, recording: Recording) -> None:
        self.requests: list[Request] = []
        self.runs: list[BatchRun] = []
        self.load: list[tuple[int, int, int]] = []
        """time, queued items, running batches; an entry for each change"""
        self._recording = recording
        self._live: dict[int, Request] = {}  # by address
        self._cuts: dict[int, Cut] = {}  # batches that are not completed
        self._open: dict[int, BatchRun] = {}  # runs that have not ended, by batch
        # Then the thread that cuts a batch is not the worker.
        self.processes = any(event.kind == Kind.SENT for event in recording.events())
        for event in recording.events():
            self._add(event)
        for request in self._live.values():
            request.end = recording.end
        for batch in list(self._open):
            self._end(batch, recording.end, "")

    def _add(self, event: Event) -> None:
        time, batch = event.time, event.batch
        match event.kind:
            case Kind.ARRIVED:
                number = len(self.requests) + 1
                request = Request(number, time, event.items, event.priority)
                self.requests.append(request)
                self._live[event.value] = request
            case Kind.PART:
                if (cut := self._cuts.get(batch)) is not None:
                    cut.requests += 1
                    if (found := self._live.get(event.value)) is not None:
                        cut.parts.append((found, event.items))
                return
            case Kind.ENDED:
                ended = self._live.pop(event.value, None)
                if ended is not None:
                    ended.end, ended.outcome = time, self._recording.outcomes[event.detail]
            case Kind.CUT:
                reason = self._recording.close_reasons[event.detail]
                self._cuts[batch] = Cut(event.items, reason)
                if not self.processes:
                    self._begin(event)
            case Kind.SENT:
                self._end(batch, time, "lost")  # does nothing if the batch is new
                self._begin(event)
            case Kind.RETURNED:
                self._end(batch, time, "lost")
            case Kind.DECODED | Kind.PREDICTED | Kind.ENCODED:
                if (run := self._open.get(batch)) is not None:
                    run.times[_TIMES[Kind(event.kind)]] = event.value
                return
            case kind if kind >= Kind.COLLATED:
                if (run := self._open.get(batch)) is not None:
                    run.phases.append((_PHASES[Kind(kind)], time - event.value, time))
                return
            case Kind.SPLIT:
                if self.processes:  # both halves are sent again
                    self._end(event.value, time, "out of memory")
                    self._cuts[batch] = Cut(event.items, "out of memory", runs=1)
                else:
                    self._begin(event)
            case Kind.JOINED:
                self._end(batch, time, "failed")
            case Kind.COMPLETED:
                self._end(batch, time, self._recording.outcomes[event.detail])
                self._cuts.pop(batch, None)
        load = (event.queued_items, event.running_batches)
        if not self.load or self.load[-1][1:] != load:
            self.load.append((time, *load))

    def _begin(self, event: Event) -> None:
        cut = self._cuts.get(event.batch)
        again = event.kind == Kind.SPLIT
        if cut is not None:
            again = cut.runs > 0
            cut.runs += 1
        run = BatchRun(event.batch, event.worker, event.time, event.items, cut, again)
        self._open[event.batch] = run
        self.runs.append(run)

    def _end(self, batch: int, time: int, outcome: str) -> None:
        run = self._open.pop(batch, None)
        if run is not None:
            run.end, run.outcome = time, outcome
