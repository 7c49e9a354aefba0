"""The requests of a client on their way to the owner.

A client's engine is only a waiting room: its batches have one item each. Every item of a request
stands for the whole request, so the sender gets all of it together.
"""

from __future__ import annotations

import operator
import time
from typing import TYPE_CHECKING, Any

from .. import _core
from .._errors import StreamerClosed
from .._options import Options

if TYPE_CHECKING:
    from ray import ObjectRef


class Sent:
    """One request of this client: what it carries, and where its outputs go."""

    __slots__ = ("batches", "context", "deadline", "items", "priority", "refs", "tenant", "traits")

    def __init__(
        self,
        items: list[Any],
        traits: tuple[list[int], list[float]] | None,
        deadline: float | None,
        priority: int,
        tenant: str | None,
        context: bytes | None,
    ) -> None:
        self.items = items
        """those of the caller; pickled ones once it is sent"""
        self.traits = traits
        """the keys and the weights of the items; None: they have none"""
        self.deadline = deadline
        """in `time.monotonic()` seconds; None: no limit"""
        self.priority = priority
        self.tenant = tenant
        self.context = context
        self.refs: list[ObjectRef[Any]] = []
        """the objects of the store in which large items are"""
        self.batches: list[_core.Batch] = []
        """one for each item that the sender has taken"""

    @property
    def ended(self) -> bool:
        """True if the caller does not wait any more."""
        return all(batch.ended for batch in self.batches)

    def left(self) -> float | None:
        """Return the seconds until the deadline; None: no limit."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    def complete(self, outputs: list[Any]) -> None:
        """End it with one output per item."""
        for batch, output in zip(self.batches, outputs, strict=True):
            batch.complete(output)

    def fail(self, error: BaseException) -> None:
        """End it with an exception."""
        for batch in self.batches:
            batch.fail(error)

    def release(self) -> None:
        """Give its batches back to the engine. It has ended: no caller gets this."""
        self.fail(StreamerClosed("the request has ended"))


class Submissions:
    """The engine of a client as its streamer sees it: turns what callers submit into `Sent`."""

    def __init__(self, engine: _core.Engine, options: Options) -> None:
        self._engine = engine
        self._grouping = options.grouping

    def predict(
        self, batch: Any, timeout: float | None, priority: int, tenant: str | None = None, /
    ) -> Any:
        """Do what ``Engine.predict`` does."""
        sent = self._sent(batch, timeout, priority, tenant, None)
        return self._engine.predict(sent, timeout, priority)

    def submit(
        self,
        batch: Any,
        timeout: float | None,
        priority: int,
        tenant: str | None = None,
        context: bytes | None = None,
        /,
    ) -> Any:
        """Do what ``Engine.submit`` does."""
        sent = self._sent(batch, timeout, priority, tenant, context)
        return self._engine.submit(sent, timeout, priority)

    def submit_async(
        self,
        batch: Any,
        timeout: float | None,
        priority: int,
        tenant: str | None = None,
        context: bytes | None = None,
        /,
    ) -> Any:
        """Do what ``Engine.submit_async`` does."""
        sent = self._sent(batch, timeout, priority, tenant, context)
        return self._engine.submit_async(sent, timeout, priority)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def _sent(
        self,
        batch: Any,
        timeout: float | None,
        priority: int,
        tenant: str | None,
        context: bytes | None,
    ) -> list[Sent]:
        items = _core.item_list(batch)
        grouping = self._grouping
        traits = None if grouping is None else grouping.traits_of(items)
        # a timeout of another type is refused by the engine
        numeric = isinstance(timeout, int | float)
        deadline = time.monotonic() + timeout if numeric else None  # type: ignore[operator]
        rank = operator.index(priority)
        return [Sent(items, traits, deadline, rank, tenant, context)] * len(items)
