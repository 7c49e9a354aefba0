"""The answers to all routes, for any web framework."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from .._engine.backend import weakly
from ._assets import assets
from ._broadcaster import Broadcaster
from ._control import Control, Events, Refused, Steering, TokenCheck
from ._metrics import MISSING, Metrics
from ._samples import Samples
from ._schema import VERSION, schema, to_json
from ._shown import targets
from ._snapshots import Snapshot, Snapshots
from ._targets import Wait

__all__ = ["Answer", "Control", "Site"]

INTERVAL = 1.0  # s between two events, and the age up to which a snapshot is used
QUEUE_SHARE = 0.9
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""the headers of every answer"""

EVENTS_HEADERS = {**HEADERS, "X-Accel-Buffering": "no"}
"""those of ``/events``; nginx must not buffer it"""


@dataclasses.dataclass
class Answer:
    """An HTTP response."""

    status: int
    body: bytes
    media_type: str = JSON
    headers: Mapping[str, str] = dataclasses.field(default_factory=lambda: HEADERS)


class Site:
    """The answers to all routes. Any thread may call the methods; those that block say so.

    Args:
        streamers, control, ready_queue_share, ready_without_workers: as for `create_app`.
        event_streams: most readers of ``/events``.
    """

    def __init__(
        self,
        streamers: Any,
        control: Control | TokenCheck | None = None,
        ready_queue_share: float | None = QUEUE_SHARE,
        event_streams: int = 1000,
        ready_without_workers: bool = False,
    ) -> None:
        self._targets = targets(streamers, ready_queue_share, ready_without_workers)
        self._control = control
        self._event_streams = event_streams
        self._begin()
        self.collected = Metrics(self._targets)
        """what ``/metrics`` has"""
        self.closing: Callable[[], str] = str
        """returns why no streamer is ready any more; empty: that is not so"""
        os.register_at_fork(after_in_child=weakly(self._begin))

    def _begin(self) -> None:
        """Create what has locks and threads. A forked child has its own."""
        self._snapshots = Snapshots(self._targets)
        self._samples = Samples(self._targets)
        self._events = Events()
        self.steering = Steering(self._targets, self._control, self._events)
        self.broadcaster = Broadcaster(self._frame, INTERVAL, self._event_streams)

    def live(self) -> Answer:
        """Answer ``/live``."""
        return Answer(200, b"live\n", TEXT)

    def ready(self) -> Answer:
        """Answer ``/ready``. Blocks for at most `_snapshots.LIMIT`."""
        reasons = self._reasons(self._snapshots.get(INTERVAL, checks=True))
        ready = not any(reasons.values())
        streamers = {
            name: {"ready": not reason, "reason": reason} for name, reason in reasons.items()
        }
        return _json({"ready": ready, "streamers": streamers}, 200 if ready else 503)

    def stats(self) -> Answer:
        """Answer ``/stats``. Blocks for at most `_snapshots.LIMIT`."""
        return _json(self._document(INTERVAL, brief=False))

    def history(self) -> Answer:
        """Answer ``/history``: what the plots of a page begin with."""
        return Answer(200, self._samples.as_json())

    def schema(self) -> Answer:
        """Answer ``/stats/schema``."""
        return Answer(200, json.dumps(schema(), indent=1).encode(), "application/schema+json")

    def metrics(self) -> Answer:
        """Answer ``/metrics``. May block."""
        rendered = self.collected.render()
        if rendered is None:
            return Answer(501, f"{MISSING}\n".encode(), TEXT)
        return Answer(200, *rendered)

    def asset(self, path: str, if_none_match: str | None) -> Answer:
        """Answer ``/`` (index.html) and ``/static``."""
        asset = assets().get(path)
        if asset is None:
            return Answer(404, b"not found\n", TEXT)
        headers = {**HEADERS, "Cache-Control": "no-cache", "ETag": asset.etag}
        if if_none_match == asset.etag:
            return Answer(304, b"", asset.media_type, headers)
        return Answer(200, asset.body, asset.media_type, headers)

    def control(self, name: str, body: bytes) -> Answer:
        """Answer ``/control`` after the request was allowed. May block."""
        snapshot = self._snapshots.get(INTERVAL).get(name)
        before = None if snapshot is None else snapshot.stats
        try:
            done, goes_on = self.steering.apply(name, body, before)
        except Refused as why:
            return self.refused(name, why)
        return _json({"changed": done}, 202 if goes_on else 200)

    def trace(self, name: str, seconds: str, wait: Wait) -> Answer:
        """Answer ``/trace`` after the request was allowed. Blocks while `wait` does."""
        try:
            body = self.steering.trace(name, seconds, wait)
        except Refused as why:
            return self.refused(name, why)
        attached = {**HEADERS, "Content-Disposition": 'attachment; filename="trace.json"'}
        return Answer(200, body, JSON, attached)

    def refused(self, name: str, why: Refused) -> Answer:
        """Answer a request that changes nothing."""
        self.steering.refused(name, why)
        answer = _json({"error": str(why)}, why.status)
        if why.status == 401:
            answer.headers = {**HEADERS, "WWW-Authenticate": 'Bearer realm="service-streamer"'}
        return answer

    # -------------------------------------------------------------------- private

    def _frame(self) -> bytes:
        document = self._document(INTERVAL / 2, brief=True)
        return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"

    def _reasons(self, snapshots: Mapping[str, Snapshot]) -> dict[str, str]:
        return {
            name: self.closing() or self._targets[name].closing() or each.reason
            for name, each in snapshots.items()
        }

    def _document(self, max_age: float, brief: bool) -> dict[str, Any]:
        snapshots = self._snapshots.get(max_age)
        reasons = self._reasons(snapshots)
        return {
            "version": VERSION,
            "time": round(time.time(), 3),
            "control": self.steering.kind,
            "streamers": {
                name: {
                    "kind": self._targets[name].kind,
                    "label": self._targets[name].label,
                    "ready": not reasons[name],
                    "reason": reasons[name],
                    "verdict": each.verdict,
                    "stats": None if each.stats is None else to_json(each.stats, brief),
                    "models": None if each.models is None else to_json(each.models, brief),
                }
                for name, each in snapshots.items()
            },
            "events": self._events.all(),
        }


def _json(document: Mapping[str, Any], status: int = 200) -> Answer:
    return Answer(status, json.dumps(document).encode() + b"\n")
