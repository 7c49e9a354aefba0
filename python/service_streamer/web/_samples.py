"""The last five minutes of each streamer, for pages that are opened later."""

from __future__ import annotations

import collections
import contextlib
import functools
import json
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from .._statistics.stats import OUTCOMES, StreamerStats
from .._waiting.threads import NativeThread, original
from ._targets import Target

SECONDS = 300
"""of samples that are kept"""
PERIOD = 1.0  # s between two samples
QUIET = 10  # samples without a change, after which the thread ends
UNNOTICED = 300  # the same, if the next request cannot be noticed

_FIELDS = (
    *("engine_id", "uptime", "policy", "batch_size", "max_latency", "slo", "workers"),
    *OUTCOMES,
    *("items", "queued_items", "running_items", "busy_time", "worker_restarts"),
)
_TIMES = ("queue_time", "service_time", "delivery_time", "latency")
_OF_SUMMARY = ("count", "p50", "p99")
_OF_WORKER = ("pid", "device", "state", "busy_time", "items")

Sample = dict[str, Any]
"""what the plots need of the statistics, as JSON values"""


def sample_of(stats: StreamerStats) -> Sample:
    """Return a sample: a part of what ``/stats`` has."""

    def parts(value: Any, names: tuple[str, ...]) -> Sample:
        return {name: getattr(value, name) for name in names}

    return {
        **parts(stats, _FIELDS),
        "last_10s": {name: parts(getattr(stats.last_10s, name), _OF_SUMMARY) for name in _TIMES},
        "worker_processes": [parts(each, _OF_WORKER) for each in stats.worker_processes],
    }


class Samples:
    """Takes a sample a second while something happens, and keeps those of `SECONDS`.

    A thread takes them from a request on, until nothing has changed for `QUIET` of them. The next
    request starts it again, so nothing runs while there are no requests. If a target does not
    notice its requests, `as_json` starts the thread. Then it ends after `UNNOTICED` samples without
    a change and without a call of `as_json`.
    The memory is bounded: a sample has about 1 KB, and 100 bytes for each worker process. Any
    thread may call the methods.

    Args:
        targets: by name. Those without `Target.sample` have no samples.
    """

    def __init__(self, targets: Mapping[str, Target]) -> None:
        self._sources = {name: each for name, each in targets.items() if each.sample is not None}
        self._kept: dict[str, collections.deque[tuple[float, bytes]]] = {
            name: collections.deque(maxlen=SECONDS) for name in self._sources
        }
        self._last: dict[str, Sample] = {}
        self._quiet = 0  # samples since the last change
        self._running = original("_thread", "allocate_lock")()  # held while there is a thread
        self._asked = False  # a request has come since the thread last looked
        self._armed: set[str] = set()  # the targets whose next request wakes the thread
        self._watch()

    def wake(self) -> None:
        """Start the thread, unless it runs. Never blocks for long, and raises no Exception."""
        self._asked = True
        if not self._running.acquire(blocking=False):
            return
        thread: NativeThread | None = None
        try:
            run = functools.partial(_run, weakref.ref(self))
            thread = NativeThread(run, "service-streamer-samples")
            thread.start()
        except BaseException as error:  # no thread can start now, or Ctrl-C
            if thread is None or (not thread.has_begun and thread.join(0)):
                self._running.release()
                self._watch()  # the next request must try again
            if not isinstance(error, Exception):
                raise

    def as_json(self) -> bytes:
        """Return the samples as a JSON object: a list for each name, the oldest first."""
        if len(self._armed) < len(self._sources):
            self.wake()
        oldest = time.time() - SECONDS
        lists = (
            json.dumps(name).encode()
            + b":["
            + b",".join(text for when, text in tuple(kept) if when > oldest)
            + b"]"
            for name, kept in self._kept.items()
        )
        return b"{" + b",".join(lists) + b"}"

    def take(self) -> bool:
        """Take a sample of each target. Return False if nothing has happened since the last."""
        happens = False
        for name, target in self._sources.items():
            if target.sample is None or target.closing():
                continue
            with contextlib.suppress(Exception):  # such as an owner that does not answer
                stats = target.sample()
                sample = sample_of(stats)
                now = time.time()
                text = json.dumps({"time": round(now, 3), "stats": sample}, separators=(",", ":"))
                self._kept[name].append((now, text.encode()))
                events = {**sample, "uptime": 0.0, "last_10s": None}
                happens |= events != self._last.get(name)
                happens |= bool(stats.queued_items or stats.running_items)
                self._last[name] = events
        return happens

    def _watch(self) -> bool:
        """Let the next request wake the thread. Return False if that is not known of a target."""
        open_ = [name for name, target in self._sources.items() if not target.closing()]
        for name in open_:
            notice = functools.partial(_notice, weakref.ref(self), name)
            with contextlib.suppress(Exception):  # it was closed just now
                if name not in self._armed and self._sources[name].call_at_next_request(notice):
                    self._armed.add(name)
        return self._armed.issuperset(open_)

    def _goes_on(self) -> bool:
        """Take a sample. Return False if the thread should end."""
        self._quiet = 0 if self.take() else self._quiet + 1
        if self._quiet < QUIET:
            return True
        asked, self._asked = self._asked, False
        if not self._watch() and (asked or self._quiet < UNNOTICED):
            self._quiet = 0 if asked else self._quiet
            return True
        if self.take() or self._asked:
            self._quiet = 0
            return True
        self._quiet = 0
        self._running.release()
        return self._asked and bool(self._running.acquire(blocking=False))


def _notice(reference: Callable[[], Samples | None], name: str) -> None:
    if (samples := reference()) is not None:
        samples._armed.discard(name)
        samples.wake()


def _run(reference: Callable[[], Samples | None]) -> None:
    sleep, due = original("time", "sleep"), time.monotonic()
    while (samples := reference()) is not None:
        try:
            if not samples._goes_on():
                return
        except BaseException:
            samples._running.release()  # another thread may start
            raise
        del samples
        due = max(due + PERIOD, time.monotonic())
        sleep(due - time.monotonic() if due > time.monotonic() else 0.0)
