"""The requests of a client on their way to the owner.

A client's engine is only a waiting room: its batches have one item each. Every item of a request
stands for the whole request, so the sender gets all of it together.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
import pickle
import time
from collections.abc import Callable, Iterable
from typing import Any

from ray import ObjectRef

from ... import _core
from ..._base.errors import SerializationError, StreamerClosed
from ..._base.messages import describe
from ..._base.options import Options
from ..._engine.future import Future
from ..._waiting.threads import original
from ..payloads import Packed, to_message


@dataclasses.dataclass(slots=True, eq=False)
class SentRequest:
    """One request of this client: what it carries, and where its outputs go."""

    items: list[Any]
    """the items of the caller; a `Payload` each once it is sent"""
    traits: tuple[list[int], list[float]] | None
    """the keys and the weights of the items; None: they have none"""
    deadline: float | None
    """the deadline in `time.monotonic()` seconds; None: no limit"""
    priority: int
    tenant: str | None
    context: bytes | None
    number: int = 0
    """the number by which the owner knows it; 0: it has not been sent"""
    renewals: int = 0
    """how often it was sent again because its outputs were lost"""
    batches: list[_core.Batch] = dataclasses.field(default_factory=list)
    """a batch for each item that the sender has taken"""

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


class OpenRequests:
    """The requests that are sent and not answered, by number. Any thread may call the methods."""

    def __init__(self) -> None:
        self.items = 0
        """the number of their items"""
        self._numbers = itertools.count(1)
        self._all: dict[int, SentRequest] = {}
        self._lock = original("_thread", "allocate_lock")()

    def __contains__(self, number: int) -> bool:
        return number in self._all

    def get(self, number: int) -> SentRequest | None:
        """Return the request with that number, if it is open."""
        return self._all.get(number)

    def numbers(self) -> list[int]:
        """Return the numbers in the order of `add`."""
        return list(self._all)

    def add(self, sent: SentRequest) -> int:
        """Give a request a number, and return it."""
        sent.number = next(self._numbers)
        with self._lock:
            self._all[sent.number] = sent
            self.items += len(sent.items)
        return sent.number

    def take_out(self, number: int) -> SentRequest | None:
        """Remove the request with that number. None: it is not open."""
        with self._lock:
            sent = self._all.pop(number, None)
            if sent is not None:
                self.items -= len(sent.items)
        return sent

    def fail(self, number: int, error: BaseException) -> None:
        """Remove a request, and end it with an exception."""
        if (sent := self.take_out(number)) is not None:
            sent.fail(error)

    def release(self, number: int) -> None:
        """Remove a request whose caller does not wait any more."""
        if (sent := self.take_out(number)) is not None:
            sent.release()

    def refuse(self, numbers: Iterable[int], error: Exception) -> None:
        """Remove requests that Ray does not send, and end them."""
        text = f"the request cannot be sent to the owner: {describe(error)}"
        for number in numbers:
            self.fail(number, SerializationError(text))

    def message(
        self, numbers: Iterable[int], unwanted: list[int]
    ) -> tuple[bytes, list[ObjectRef[Any]]]:
        """Return the arguments of ``Owner.put`` for those requests that are open.

        Args:
            numbers: of the requests to send. One whose caller does not wait any more is removed.
            unwanted: those that the owner is to cancel. They are removed.
        """
        for number in unwanted:
            self.release(number)
        requests: list[Any] = []
        refs: dict[ObjectRef[Any], int] = {}
        for number in numbers:
            sent = self.get(number)
            if sent is None:
                continue
            if sent.ended:  # maybe before cancel() could know its number
                self.release(number)
                continue
            items: list[Packed] = to_message(sent.items, refs)
            rest = sent.left(), sent.priority, sent.tenant, sent.context
            requests.append((number, *rest, items, sent.traits))
        return pickle.dumps((requests, unwanted), 5), list(refs)


class SentFuture(Future[Any]):
    """A request counts as waiting until it is answered: this process does not know when it runs."""

    __slots__ = ()

    def cancel(self) -> bool:
        """Cancel the request; return False if it has ended."""
        self._abandon()
        return self.cancelled()

    def running(self) -> bool:
        """Return False."""
        return False


class Submissions:
    """The engine of a client as its streamer sees it: turns what callers submit into `SentRequest`.

    Args:
        engine: of the client.
        options: of the streamer.
        cancel: called with a request whose caller has its answer, or does not wait any more.
    """

    def __init__(
        self, engine: _core.Engine, options: Options, cancel: Callable[[SentRequest], None]
    ) -> None:
        self._engine = engine
        self._grouping = options.grouping
        self._cancel = cancel
        self.close, self.closed, self.join = engine.close, engine.closed, engine.join
        self.abort, self.stats = engine.abort, engine.stats
        self.call_at_next_request = engine.call_at_next_request

    def predict(
        self, batch: Any, timeout: float | None, priority: int, tenant: str | None = None, /
    ) -> Any:
        """Do what ``Engine.predict`` does."""
        sents = self._sents(batch, timeout, priority, tenant, None)
        try:
            return self._engine.predict(sents, timeout, priority, tenant)
        except BaseException:
            if sents:
                self._cancel(sents[0])
            raise

    def submit(self, *request: Any) -> Any:
        """Do what ``Engine.submit`` does."""
        return self._watched(self._engine.submit, *request)

    def submit_async(self, *request: Any) -> Any:
        """Do what ``Engine.submit_async`` does."""
        return self._watched(self._engine.submit_async, *request)

    def share(
        self,
        batch: Any,
        priority: int,
        tenant: str | None,
        context: bytes | None,
        *shared: Any,
    ) -> tuple[Any, bool]:
        """Do what ``Engine.share`` does."""
        sents = self._sents(batch, None, priority, tenant, context)
        request, sent = self._engine.share(sents, priority, tenant, None, *shared)
        if sent:
            request.add_done_callback(lambda _: self._cancel(sents[0]))
        return request, sent

    def _watched(
        self,
        submit: Callable[..., Any],
        batch: Any,
        timeout: float | None,
        priority: int,
        tenant: str | None = None,
        context: bytes | None = None,
        *admitted: bool,
    ) -> Any:
        sents = self._sents(batch, timeout, priority, tenant, context)
        future = submit(sents, timeout, priority, tenant, None, *admitted)
        if sents:
            future.add_done_callback(lambda _: self._cancel(sents[0]))
        return future

    def _sents(
        self,
        batch: Any,
        timeout: float | None,
        priority: int,
        tenant: str | None,
        context: bytes | None,
    ) -> list[SentRequest]:
        items = _core.item_list(batch)
        grouping = self._grouping
        traits = None if grouping is None else grouping.traits_of(items)
        # a timeout of another type is refused by the engine
        numeric = isinstance(timeout, int | float)
        deadline = time.monotonic() + timeout if numeric else None  # type: ignore[operator]
        rank = operator.index(priority)
        return [SentRequest(items, traits, deadline, rank, tenant, context)] * len(items)
