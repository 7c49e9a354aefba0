"""Trace files in Chrome's Trace Event Format, which Perfetto reads.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .events import Recording
from .history import BatchRun, History, Request

_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)
_FIRST_EXTRA_TRACK = 1 << 30  # above all thread ids of Linux


def to_chrome(events: bytes, name: str = "service-streamer") -> bytes:
    """Return a trace file as JSON.

    It has a track for each worker with its batches, the requests with arrows to their batches, and
    the number of queued items and running batches.

    Args:
        events: what the ``finish_recording`` of a backend returned.
        name: of the streamer.
    """
    recording = Recording.parse(events)
    trace = _Trace(recording, name)
    head = json.dumps({"displayTimeUnit": "ms", "metadata": trace.metadata()})
    out = io.BytesIO()  # a trace may be large, so there is only one copy of it
    out.write(f'{head[:-1]}, "traceEvents": ['.encode())
    before = b"\n"
    for entry in trace.entries():
        out.write(before + _ENCODER.encode(entry).encode())
        before = b",\n"
    out.write(b"\n]}\n")
    return out.getvalue()


class _Trace:
    def __init__(self, recording: Recording, name: str) -> None:
        self._recording = recording
        self._history = History(recording)
        self._name = name

    def metadata(self) -> dict[str, Any]:
        return {
            "streamer": self._name,
            "seconds": (self._recording.end - self._recording.start) / 1e9,
            "unix_start": self._recording.unix_start,
            "lost_events": self._recording.lost,
        }

    def entries(self) -> Iterator[dict[str, Any]]:
        pid = self._recording.pid
        yield _name_of("process", pid, pid, self._name)
        for time, queued, running in self._history.load:
            yield self._counter("queued items", time, {"items": queued})
            yield self._counter("running batches", time, {"batches": running})
        for request in self._history.requests:
            yield from self._request(request)
        workers: dict[int, list[BatchRun]] = {}
        for run in self._history.runs:
            workers.setdefault(run.worker, []).append(run)
        extra = _FIRST_EXTRA_TRACK
        for number, (worker, runs) in enumerate(workers.items(), 1):
            if self._history.processes:
                process, title = worker, f"{self._name}: worker process {worker}"
                yield _name_of("process", process, worker, title)
                title = "batches"
            else:
                process, title = pid, f"worker {number}"
            for lane, in_lane in enumerate(_lanes(runs)):
                track = worker
                if lane > 0:  # batches of one worker overlap
                    track, extra = extra, extra + 1
                yield _name_of("thread", process, track, title + f" ({lane + 1})" * (lane > 0))
                for run in in_lane:
                    yield from self._run(run, process, track)

    def _counter(self, name: str, time: int, values: Mapping[str, int]) -> dict[str, Any]:
        pid = self._recording.pid
        return {"ph": "C", "name": name, "pid": pid, "ts": self._micros(time), "args": values}

    def _request(self, request: Request) -> Iterator[dict[str, Any]]:
        name = "request"
        if request.priority != 0:
            name += f" of priority {request.priority}"
        same = {
            "cat": "request",
            "name": name,
            "id": request.number,
            "pid": self._recording.pid,
            "tid": self._recording.pid,
        }
        yield {
            "ph": "b",
            "ts": self._micros(request.begin),
            "bind_id": request.number,
            "flow_out": True,
            "args": {"request": request.number, "items": request.items},
            **same,
        }
        outcome = request.outcome or "unfinished"
        yield {"ph": "e", "ts": self._micros(request.end), "args": {"outcome": outcome}, **same}

    def _run(self, run: BatchRun, pid: int, tid: int) -> Iterator[dict[str, Any]]:
        args: dict[str, Any] = {"batch": run.batch, "size": run.items}
        if run.cut is not None:
            args |= {"close_reason": run.cut.reason, "requests": run.cut.requests}
        args["outcome"] = run.outcome or "unfinished"
        title = f"{run.items} item{'s' * (run.items != 1)}{', again' * run.again}"
        yield self._slice("batch", title, run.begin, run.end, pid, tid, args)
        parts = run.cut.parts if run.cut is not None and not run.again else []
        inside = [*self._phases(run, pid, tid), *self._parts(run, parts, pid, tid)]
        inside.sort(key=lambda each: each["ts"])  # stable: a phase comes before its requests
        yield from inside

    def _parts(
        self, run: BatchRun, parts: Iterable[tuple[Request, int]], pid: int, tid: int
    ) -> Iterator[dict[str, Any]]:
        for i, (request, items) in enumerate(parts):
            # A nanosecond apart, because viewers nest slices of one time into each other.
            time = min(run.begin + i, run.end)
            args = {"request": request.number, "items": items}
            part = self._slice("request", f"request {request.number}", time, time, pid, tid, args)
            yield {**part, "bind_id": request.number, "flow_in": True}

    def _phases(self, run: BatchRun, pid: int, tid: int) -> Iterator[dict[str, Any]]:
        """Yield what the worker did.

        A worker process reports durations only, so the remaining time is divided between both ways.
        """
        for name, begin, end in run.phases:
            yield self._slice("phase", name, begin, end, pid, tid, {})
        if not run.times:
            return
        transport = max(0, run.end - run.begin - sum(run.times.values()))
        way = transport // 2
        begin = run.begin
        phases = [("transport", way), *run.times.items(), ("transport", transport - way)]
        for name, duration in phases:
            end = min(begin + duration, run.end)
            yield self._slice("phase", name, begin, end, pid, tid, {})
            begin = end

    def _slice(
        self, cat: str, name: str, begin: int, end: int, pid: int, tid: int, args: Any
    ) -> dict[str, Any]:
        return {
            "ph": "X",
            "cat": cat,
            "name": name,
            "ts": self._micros(begin),
            "dur": _micros(end - begin),
            "pid": pid,
            "tid": tid,
            "args": args,
        }

    def _micros(self, time: int) -> float:
        return _micros(time - self._recording.start)


def _micros(nanoseconds: int) -> float:
    """Return microseconds from which a viewer that rounds down gets the same nanoseconds."""
    micros = nanoseconds / 1000
    return micros if int(micros * 1000) == nanoseconds else math.nextafter(micros, math.inf)


def _name_of(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": f"{kind}_name", "pid": pid, "tid": tid, "args": {"name": name}}


def _lanes(runs: list[BatchRun]) -> list[list[BatchRun]]:
    """Distribute the runs of a worker, so that those in a lane are nested or do not overlap."""
    lanes: list[list[BatchRun]] = []
    stacks: list[list[int]] = []  # of each lane: the ends of the runs that have not ended
    for run in sorted(runs, key=lambda each: (each.begin, -each.end)):
        for stack in stacks:
            while stack and stack[-1] <= run.begin:
                stack.pop()
        free = (i for i, stack in enumerate(stacks) if not stack or run.end <= stack[-1])
        number = next(free, len(lanes))
        if number == len(lanes):
            lanes.append([])
            stacks.append([])
        lanes[number].append(run)
        stacks[number].append(run.end)
    return lanes
