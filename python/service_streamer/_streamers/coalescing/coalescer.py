"""The engine in front of the engine of a streamer, in which equal items run once."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Hashable
from typing import Any

from ... import _core
from ..._base.errors import RequestTimeout, StreamerError, WorkerLost
from ..._base.messages import describe
from ..._base.model_errors import copy_error, detached
from ..._base.options import MAX_COUNT, Cache, Options
from ..._base.request_context import reader_of
from ..._engine.backend import EngineLike
from ..._engine.future import Future
from ..._engine.waiting_room import EngineThreads
from ..._waiting.threads import original
from ..._waiting.timeouts import countdown
from .answers import Answers
from .keys import key_by, key_of

_SECONDS = (int, float)
STRIPES = 64
"""parts of the table, each with a lock: a large item that is being pickled holds up few others"""

_logger = logging.getLogger("service_streamer")


@dataclasses.dataclass(slots=True, eq=False)
class SharedItem:
    """An item that is queued or running for one or more callers, or was answered by the cache.

    Its request has no deadline and no caller of its own. It ends when the last caller leaves.
    """

    key: Hashable | None
    """None: no other item is equal to it"""
    priority: int
    future: Any
    """None: the cache had its output"""
    output: Any = None
    wanted: int = 1
    """the number of its callers; guarded by the lock of its stripe"""
    generation: int | None = None
    """of the cache when it began; None: its output is not kept"""

    @property
    def may_be_dropped(self) -> bool:
        """True if the model has not received it."""
        future = self.future
        return future is not None and not future.done() and not future.running()


class _Stripe:
    """A part of the table: the items that other callers may join, by key."""

    __slots__ = ("cached", "coalesced", "live", "lock")

    def __init__(self) -> None:
        self.lock = original("_thread", "RLock")()  # `weight` or a finalizer may use the streamer
        self.live: dict[Hashable, SharedItem] = {}
        self.coalesced = 0
        self.cached = 0


class Coalescer:
    """An `EngineLike`: sends each item to the engine of a streamer, unless an equal one is there.

    `predict` waits for the items themselves. For `submit` and `submit_async`, a second engine has a
    request of the caller's own, with its deadline and its future. The calling thread takes
    its batches itself, so no thread stands between a caller and the model.

    Args:
        engine: of the streamer.
        options: of the streamer.
    """

    def __init__(self, engine: EngineLike, options: Options) -> None:
        self._inner = engine
        by = options.coalesce
        self._key: Callable[[Any], Hashable | None] = key_by(by) if callable(by) else key_of
        self._copies = by == "copy"
        self._answers = Answers(options.cache) if isinstance(options.cache, Cache) else None
        self._stripes = tuple(_Stripe() for _ in range(STRIPES))
        self._callers = _Callers()
        self._at_next_request: list[Callable[[], object]] = []

    # ------------------------------------------------------------- as any engine

    def predict(
        self, batch: Any, timeout: float | None, priority: int, tenant: str | None = None
    ) -> Any:
        """Do what ``Engine.predict`` does."""
        if self._at_next_request:
            self._begin_request()
        items = _core.item_list(batch)
        usual = timeout is None or (type(timeout) in _SECONDS and timeout >= 0)
        if not usual or not items:
            self._inner.predict([], timeout, priority, tenant)  # raises what any request would
        elif len(items) == 1:
            one, _ = self._join(self._key(items[0]), items[0], priority, tenant, None, False)
            try:
                return [self._wait(one, timeout, timeout, 1)]
            finally:
                self._leave(one)
                del one  # or the traceback of an error would keep it, and it has the error
        keys = list(map(self._key, items))
        deadline = None if timeout is None else time.monotonic() + timeout
        joined: list[SharedItem] = []
        outputs: list[Any] = []
        each = None
        admitted = False
        try:
            for key, item in zip(keys, items, strict=True):
                each, sent = self._join(key, item, priority, tenant, None, admitted)
                joined.append(each)
                admitted = admitted or sent
            for each in joined:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                outputs.append(self._wait(each, left, timeout, len(items)))
            return outputs
        finally:
            each = None  # or the traceback of an error would keep the item, which has the error
            while joined:
                self._leave(joined.pop())

    def submit(self, *request: Any) -> Any:
        """Do what ``Engine.submit`` does, but never block: the request waits for room."""
        return self.submit_async(*request)

    def submit_async(
        self,
        batch: Any,
        timeout: float | None,
        priority: int,
        tenant: str | None = None,
        context: bytes | None = None,
        admitted: bool = False,
    ) -> Any:
        """Do what ``Engine.submit_async`` does."""
        if self._at_next_request:
            self._begin_request()
        items = _core.item_list(batch)
        if not items or (context is not None and reader_of(context) is not None):
            # the pieces of a stream go to one reader
            return self._inner.submit_async(items, timeout, priority, tenant, context, admitted)
        self._inner.submit_async([], timeout, priority, tenant)  # raises what any request would
        keys = map(self._key, items)
        request = _Request(self, priority, tenant, context, admitted)
        parts = [_Part(key, item, request) for key, item in zip(keys, items, strict=True)]
        future = None
        try:
            future = self._callers.engine.submit_async(parts, timeout, 0)
            future.bind(request)
            self._hand_all_on()
        except BaseException:  # a Ctrl-C
            if future is not None:
                future._abandon()
            request.end()
            raise
        if request.refusal is not None:
            request.end()
            raise request.refusal.pop()
        return future

    def close(self, drain: bool) -> None:
        """Reject new requests; without `drain` also end the queued ones. Never blocks."""
        self._inner.close(drain)
        self._callers.close(drain)
        self._hand_all_on()  # what interrupted callers have left

    def closed(self) -> bool:
        """Return True if new requests are rejected."""
        return self._inner.closed()

    def join(self, timeout: float | None) -> bool:
        """Block until all requests have ended; return False on timeout."""
        left = countdown(timeout)
        return self._inner.join(timeout) and self._callers.engine.join(left())

    def abort(self) -> None:
        """End all requests, also those that the model works on."""
        self._inner.abort()
        self._callers.engine.abort()

    def stats(self) -> dict[str, Any]:
        """Return what the engine returns, and what was saved."""
        return {**self._inner.stats(), **self.saved()}

    def call_at_next_request(self, function: Callable[[], object]) -> None:
        """Call a function once, with the next request, also if that does not reach the engine."""
        self._at_next_request.append(function)

    # -------------------------------------------------------------- of its own

    def saved(self) -> dict[str, int]:
        """Return the fields of `StreamerStats` that count the items that did not run."""
        stripes = self._stripes
        return {
            "coalesced": sum(each.coalesced for each in stripes),
            "cached": sum(each.cached for each in stripes),
        }

    def own_this_thread(self) -> bool:
        """Return True if the calling thread is its own, so it must not wait for `end_close`."""
        return self._callers.own_this_thread()

    def end_close(self, timeout: float | None) -> None:
        """Wait until the requests of callers have ended, those of the engine having done so."""
        left = countdown(timeout)
        if not self._callers.engine.join(timeout):
            self._callers.engine.abort()
        self._callers.join(left())

    def clear(self) -> None:
        """Forget all outputs: another version of the model answers from now on."""
        for each in self._stripes:
            with each.lock:
                each.live.clear()
        if self._answers is not None:
            self._answers.clear()

    # ----------------------------------------------------------------- private

    def _join(
        self,
        key: Hashable | None,
        item: Any,
        priority: int,
        tenant: str | None,
        context: bytes | None,
        admitted: bool,
    ) -> tuple[SharedItem, bool]:
        """Return the equal item that is there, or send this one; True: it was sent. Never blocks.

        Args:
            admitted: another item of the request was sent, so the queue does not refuse this one.
        """
        if key is None:
            future = self._inner.submit_async([item], None, priority, tenant, context, admitted)
            return SharedItem(None, priority, future), True
        stripe = self._stripe_of(key)
        with stripe.lock:
            answers = self._answers
            shared = stripe.live.get(key)
            if shared is not None:
                if type(priority) is not int:
                    self._check(priority, tenant)  # as < may not work
                if not shared.future.done():
                    # a request of a higher priority does not wait behind the others in the queue
                    if priority <= shared.priority or shared.future.running():
                        self._check(priority, tenant)
                        shared.wanted += 1
                        stripe.coalesced += 1
                        return shared, False
                elif answers is not None and shared.future.exception() is None:
                    self._keep(shared, shared.future.result()[0])  # its callers wake later
            if answers is not None and (answer := answers.get(key)) is not None:
                self._check(priority, tenant)
                stripe.cached += 1
                return SharedItem(key, priority, None, answer[0]), False
            future = self._inner.submit_async([item], None, priority, tenant, context, admitted)
            shared = stripe.live[key] = SharedItem(key, priority, future)
            if answers is not None:
                shared.generation = answers.generation
            return shared, True

    def _check(self, priority: int, tenant: str | None) -> None:
        """Raise what a request that is sent would raise. Never blocks."""
        self._inner.submit_async([], None, priority, tenant)

    def _leave(self, shared: SharedItem) -> None:
        """Let a caller of an item go. Without the last one it is cancelled."""
        future = shared.future
        if future is None:
            return
        if shared.key is not None:
            stripe = self._stripe_of(shared.key)
            with stripe.lock:
                shared.wanted -= 1
                if shared.wanted:
                    return
                if stripe.live.get(shared.key) is shared:
                    del stripe.live[shared.key]
        if not future.done():
            future._abandon()

    def _wait(
        self, shared: SharedItem, left: float | None, timeout: float | None, items: int
    ) -> Any:
        """Return the output of an item for one caller. Blocks."""
        future = shared.future
        if future is None:
            return self._output(shared, shared.output)
        try:
            error = future.exception(left)
        except RequestTimeout:
            text = f"the request of {items} item{'s' * (items != 1)} was not answered within"
            raise RequestTimeout(f"{text} its deadline ({timeout:g} s)") from None
        if error is None:
            output = future.result()[0]
            if shared.generation is not None:
                self._keep(shared, output)
            return self._output(shared, output) if self._copies else output
        del shared, future  # which have the exception, whose traceback has this frame
        try:
            raise copy_error(error)
        finally:
            del error

    def _begin_request(self) -> None:
        """Call the functions of `call_at_next_request`. What one raises is no fault of a caller."""
        waiting = self._at_next_request
        for _ in range(len(waiting)):
            try:
                function = waiting.pop(0)
            except IndexError:  # another thread has taken it
                break
            try:
                function()
            except Exception as error:
                about = {"error": describe(error)}
                _logger.exception("exception in %r at a request", function, extra=about)

    def _hand_all_on(self) -> None:
        """Send the items of all requests of `submit`, also those of other callers. Never blocks."""
        next_batch = self._callers.engine.next_batch
        while taken := next_batch(0):
            self._hand_on(taken)

    def _hand_on(self, batch: _core.Batch) -> None:
        """Send an item of a request of `submit`. Never blocks."""
        part: _Part = batch.items[0]
        request = part.request
        try:
            rest = (request.priority, request.tenant, request.context, request.admitted)
            try:
                shared, sent = self._join(part.key, part.item, *rest)
                request.admitted = request.admitted or sent
            except StreamerError as error:  # the queue is full, or the streamer closed
                request.refusal = [error]
                batch.fail(copy_error(error))
                return
            part.item = None
            if shared.future is None:
                batch.complete([self._output(shared, shared.output)])
            elif request.add(shared):
                shared.future.add_done_callback(functools.partial(self._arrived, batch, shared))
        except Exception as error:
            batch.fail(detached(error))
        except BaseException:  # a Ctrl-C is for this thread, and the item may be of another caller
            batch.fail(_interrupted())
            raise

    def _arrived(self, batch: _core.Batch, shared: SharedItem, future: Any) -> None:
        """Answer one caller of an item: a done callback."""
        if batch.ended:
            return
        try:
            error = future.exception()
            if error is not None:
                batch.fail(copy_error(error))
                return
            output = future.result()[0]
            self._keep(shared, output)
            batch.complete([self._output(shared, output)])
        except Exception as error:
            batch.fail(detached(error))
        except BaseException:
            batch.fail(_interrupted())
            raise

    def _keep(self, shared: SharedItem, output: Any) -> None:
        generation = shared.generation
        if generation is not None and self._answers is not None:
            shared.generation = None
            with contextlib.suppress(Exception):  # of the code of an output that tells its size
                self._answers.put(shared.key, output, generation)

    def _output(self, shared: SharedItem, output: Any) -> Any:
        return copy.deepcopy(output) if self._copies and shared.key is not None else output

    def _stripe_of(self, key: Hashable) -> _Stripe:
        return self._stripes[hash(key) % STRIPES]


def _interrupted() -> WorkerLost:
    return WorkerLost("the thread that handled an item was interrupted; send the request again")


@dataclasses.dataclass(slots=True, eq=False)
class _Part:
    """One item of a request."""

    key: Hashable | None
    item: Any
    request: _Request


class _Request:
    """A request of `submit`: the items that it waits for."""

    __slots__ = (
        "_coalescer",
        "_ended",
        "_shared",
        "admitted",
        "context",
        "priority",
        "refusal",
        "tenant",
    )

    def __init__(
        self,
        coalescer: Coalescer,
        priority: int,
        tenant: str | None,
        context: bytes | None,
        admitted: bool,
    ) -> None:
        self._coalescer = coalescer
        self._shared: list[SharedItem] = []
        self._ended = False
        self.refusal: list[StreamerError] | None = None
        """why an item could not be sent; the calling thread takes it out to raise it"""
        self.admitted = admitted
        """an item was sent, so the queue refuses no other one"""
        self.priority = priority
        self.tenant = tenant
        self.context = context

    def add(self, shared: SharedItem) -> bool:
        """Add an item. Return False if the request has ended."""
        self._shared.append(shared)
        if self._ended:
            self.end()
        return not self._ended

    def end(self) -> None:
        """Leave all items. May be called more than once."""
        self._ended = True
        while self._shared:
            try:
                shared = self._shared.pop()  # atomic
            except IndexError:
                break
            self._coalescer._leave(shared)

    def check_may_wait(self) -> None:
        """Raise RuntimeError in a thread that runs the model: it would wait for itself."""
        for each in self._shared[:1]:
            each.future._check_waiter()

    @property
    def may_be_cancelled(self) -> bool:
        """True if the model has not received all items."""
        return any(each.may_be_dropped for each in list(self._shared))

    @property
    def runs(self) -> bool:
        """True if the model works on an item."""
        return any(each.future.running() for each in list(self._shared))


class CoalescedFuture(Future):
    """The `Future` of a request whose items may be those of other requests, too."""

    _request: _Request | None = None

    def bind(self, request: _Request) -> None:
        """Connect the future with its request, right after that was submitted."""
        self._request = request
        self.add_done_callback(CoalescedFuture._unbind)

    def cancel(self) -> bool:
        request = self._request
        if not super().cancel() and request is not None and request.may_be_cancelled:
            self._abandon()
        return self.cancelled()

    def result(self, timeout: float | None = None) -> Any:
        try:
            self._check_may_wait()
            return super().result(timeout)
        finally:
            del self  # see `Future.__await__`

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._check_may_wait()
        return super().exception(timeout)

    def running(self) -> bool:
        request = self._request
        return super().running() and request is not None and request.runs

    def _timing(self) -> None:
        """Return None: the request has no batch of its own."""

    def _check_may_wait(self) -> None:
        if (request := self._request) is not None and not self.done():
            request.check_may_wait()

    def _unbind(self) -> None:
        request, self._request = self._request, None
        if request is not None:
            request.end()


class _Callers(EngineThreads):
    """The engine that has the requests of `submit`. Its only thread watches their deadlines."""

    def __init__(self) -> None:
        super().__init__(
            Options(
                batch_size=1,
                max_latency=0.0,
                worker_timeout=None,
                policy="greedy",
                max_queue=MAX_COUNT,
                copy_outputs=False,
                isolate_errors=False,
            ),
            future_type=CoalescedFuture,
        )

    def start(self) -> None:
        """Start nothing: callers take the batches."""
