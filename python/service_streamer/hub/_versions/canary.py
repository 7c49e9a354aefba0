"""A canary: a version that gets a share of the requests, until it has proved itself."""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Callable, Iterator
from typing import Any

from ..._base.errors import CancelledError, QueueFull, StreamerClosed
from ..._engine import lifecycle
from ..._waiting.threads import original
from .._models import Alias, Version
from .._status import CanaryStatus
from .plan import CanaryPlan

_NO_FAULT = (CancelledError, QueueFull, StreamerClosed)


class Canary:
    """Chooses the version for each request, and compares the error rates. Any thread may call it.

    Args:
        version: the one that is tried.
        plan: how.
        end: called once with the reason if it is worse. Must not block.
    """

    def __init__(
        self,
        version: Version,
        plan: CanaryPlan,
        end: Callable[[Canary, str], None],
    ) -> None:
        self.alias = Alias(version.name, version)
        self.version = version
        self.plan = plan
        self.ended = ""
        """the reason why it has ended; empty while it goes on"""
        self._end = end
        self._lock = original("_thread", "allocate_lock")()  # guards the counters
        lifecycle.watch(self)
        self._requests = {True: 0, False: 0}  # by whether the canary got them
        self._errors = {True: 0, False: 0}

    def takes(self, caller_key: object) -> bool:
        """Return True for the share of the callers that it gets, which stay the same."""
        if caller_key is None:
            return random.random() < self.plan.share
        salted = f"{self.version.name} {caller_key!r}".encode()
        digest = hashlib.blake2b(salted, digest_size=8).digest()
        return int.from_bytes(digest, "big") < self.plan.share * 2**64

    @contextlib.contextmanager
    def request(self, serving: Alias, caller_key: object) -> Iterator[Alias]:
        """Give the alias for a request that is made in the block, and count how it ends."""
        taken = self.takes(caller_key)
        try:
            yield self.alias if taken else serving
        except BaseException as error:
            self._count(taken, error)
            raise
        self._count(taken, None)

    def submitted(self, serving: Alias, caller_key: object, submit: Callable[[Alias], Any]) -> Any:
        """Return the future that `submit` makes for an alias, and count how it ends."""
        taken = self.takes(caller_key)
        future = submit(self.alias if taken else serving)

        def count(future: Any) -> None:
            self._count(taken, CancelledError() if future.cancelled() else future.exception())

        future.add_done_callback(count)
        return future

    def status(self) -> CanaryStatus:
        """Return what `ModelHub.status` tells."""
        with self._lock:
            return CanaryStatus(
                version=self.version.number,
                share=self.plan.share,
                requests=self._requests[True],
                errors=self._errors[True],
                serving_requests=self._requests[False],
                serving_errors=self._errors[False],
                ended=self.ended or None,
            )

    def _count(self, taken: bool, error: BaseException | None) -> None:
        if isinstance(error, _NO_FAULT) or not isinstance(error, Exception | None):
            return
        with self._lock:
            self._requests[taken] += 1
            self._errors[taken] += error is not None
            if self.ended or self._requests[True] < self.plan.min_requests:
                return
            rate, other = self._rate(True), self._rate(False)
            if rate <= other + self.plan.margin:
                return
            self.ended = f"error rate {rate:.1%}, against {other:.1%} of the version that serves"
        self._end(self, self.ended)

    def _reset_after_fork(self) -> None:
        self._lock = original("_thread", "allocate_lock")()
        self._end = lambda canary, why: None  # a child loads and unloads nothing

    def _rate(self, taken: bool) -> float:
        return self._errors[taken] / self._requests[taken] if self._requests[taken] else 0.0
