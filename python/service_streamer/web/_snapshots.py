"""Snapshots of all targets, shared by everything that asks at about the same time."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import threading
import time
from collections.abc import Callable, Mapping

from .._base.messages import describe
from ._targets import Look, Target

LIMIT = 0.5  # s to wait for a snapshot; the probes of Kubernetes wait for 1 s by default


@dataclasses.dataclass(frozen=True)
class Snapshot(Look):
    """The state of a target, and when it was read."""

    taken: float = dataclasses.field(default_factory=time.monotonic, compare=False)


class Snapshots:
    """Takes snapshots in threads, at most one at a time of each target.

    A target that blocks keeps one thread busy, whatever the number of callers. Any thread may call
    `get`.

    Args:
        targets: by name.
    """

    def __init__(self, targets: Mapping[str, Target]) -> None:
        self._limit = LIMIT
        self._shared = {name: _Shared(target.look) for name, target in targets.items()}
        own = {n: _Shared(target.check) for n, target in targets.items() if target.check}
        self._checks = {**self._shared, **own}

    def get(self, max_age: float, *, checks: bool = False) -> dict[str, Snapshot]:
        """Return a snapshot of each target. Blocks at most `LIMIT` seconds.

        Args:
            max_age: seconds. A snapshot that is older is taken again.
            checks: only the reason is needed.
        """
        shared = self._checks if checks else self._shared
        requests = {name: each.request(max_age) for name, each in shared.items()}
        until = time.monotonic() + self._limit
        found = {}
        for name, future in requests.items():
            try:
                found[name] = future.result(max(0.0, until - time.monotonic()))
            except concurrent.futures.TimeoutError:
                reason = f"the streamer did not answer within {self._limit:g} s"
                found[name] = Snapshot(None, reason, "")
        return found


class _Shared:
    """The newest snapshot of one target."""

    def __init__(self, look: Callable[[], Look]) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._newest: concurrent.futures.Future[Snapshot] | None = None
        """done, or being taken by a thread"""

    def request(self, max_age: float) -> concurrent.futures.Future[Snapshot]:
        with self._lock:
            newest = self._newest
            if newest is not None and not _is_old(newest, max_age):
                return newest
            future: concurrent.futures.Future[Snapshot] = concurrent.futures.Future()
            self._newest = future
        try:
            threading.Thread(
                target=self._take, args=(future,), name="service-streamer-snapshot", daemon=True
            ).start()
        except RuntimeError as error:  # too many threads; the next call must try again
            future.set_result(Snapshot(None, f"the statistics cannot be read: {error}", ""))
        return future

    def _take(self, future: concurrent.futures.Future[Snapshot]) -> None:
        try:
            look = self._look()
        except BaseException as error:  # whatever it is, the next call must try again
            look = Look(None, f"the statistics cannot be read: {describe(error)}", "")
        future.set_result(Snapshot(look.stats, look.reason, look.verdict, look.models))


def _is_old(newest: concurrent.futures.Future[Snapshot], max_age: float) -> bool:
    return newest.done() and time.monotonic() - newest.result().taken > max_age
