"""The engine in front of the engine of a streamer, in which equal items run once."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from ... import _core
from ..._base.errors import RequestTimeout, StreamerError, WorkerLost
from ..._base.messages import describe, short, wrong_option
from ..._base.model_errors import copy_error, detached
from ..._base.options import MAX_COUNT, Cache, Options
from ..._base.request_context import reader_of
from ..._engine.backend import EngineLike, SharingEngine
from ..._engine.future import Future
from ..._engine.waiting_room import EngineThreads
from ..._waiting.threads import original
from ..._waiting.timeouts import countdown
from .answers import Answers
from .keys import key_by, key_of

_SECONDS = (int, float)
_logger = logging.getLogger("service_streamer")


class _Share(NamedTuple):
    """The part of one caller in an item that is queued or running, or was answered by the cache."""

    key: Hashable | None
    """None: no other item is equal to it"""
    request: _core.FutureBase[Any] | None
    """without a deadline, and abandoned when its last caller leaves; None: the cache answered"""
    sent: bool
    """False: the request or the output was there already"""
    generation: int
    """of the cache before the caller came"""
    output: Any = None

    @property
    def runs(self) -> bool:
        """True if the model works on it."""
        return self.request is not None and self.request.running()

    @property
    def may_be_dropped(self) -> bool:
        """True if the model has not received it."""
        return self.request is not None and not self.request.done() and not self.request.running()


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
        if not isinstance(engine, SharingEngine):
            raise wrong_option(
                f"coalesce and cache need an engine with share(), which {short(engine)} has not"
            )
        self._inner = engine
        by = options.coalesce
        self._key: Callable[[Any], Hashable | None] = key_by(by) if callable(by) else key_of
        self._copies = by == "copy"
        self._answers = Answers(options.cache) if isinstance(options.cache, Cache) else None
        self._predict_shared: Callable[..., Any] | None = None
        """for one item; None: the cache, the copies or the engine need more"""
        if isinstance(engine, _core.Engine) and self._answers is None and not self._copies:
            self._predict_shared = engine.predict_shared
        self._live: dict[Hashable, _core.FutureBase[Any]] = {}
        """the requests that other callers may join; changed by ``Engine.share`` and `_leave`"""
        self._saved_lock = original("_thread", "RLock")()  # a finalizer may use the streamer
        self._saved = {"coalesced": 0, "cached": 0}
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
        if len(items) == 1 and (predict_shared := self._predict_shared) is not None:
            key = self._key(items[0])
            answer = predict_shared(items, timeout, priority, tenant, self._live, key)
            if type(answer) is list:
                return answer
            request, sent = answer
            del answer
            try:
                if not sent:
                    self._count("coalesced")
                return [self._wait(request, 0.0 if sent else timeout, timeout, 1)]
            finally:
                request._leave(self._live, key)
                del request  # or the traceback of an error would keep it, and it has the error
        usual = timeout is None or (type(timeout) in _SECONDS and timeout >= 0)
        if not usual or not items:
            self._inner.predict([], timeout, priority, tenant)  # raises what any request would
        keys = list(map(self._key, items))
        deadline = None if timeout is None else time.monotonic() + timeout
        shares: list[_Share] = []
        outputs: list[Any] = []
        each = None
        admitted = False
        try:
            for key, item in zip(keys, items, strict=True):
                each = self._join(key, item, priority, tenant, None, admitted)
                shares.append(each)
                admitted = admitted or each.sent
            for each in shares:
                output = each.output
                if each.request is not None:
                    left = None if deadline is None else max(0.0, deadline - time.monotonic())
                    output = self._wait(each.request, left, timeout, len(items))
                    self._keep(each.key, output, each.generation)
                outputs.append(self._output(each.key, output))
            return outputs
        finally:
            each = None  # or the traceback of an error would keep its request, which has the error
            while shares:
                self._leave(shares.pop())

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
        return dict(self._saved)

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
        self._live.clear()
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
    ) -> _Share:
        """Return the part in the equal item that is there, or send this one. Never blocks.

        Args:
            admitted: another item of the request was sent, so the queue does not refuse this one.
        """
        answers, generation = self._answers, 0
        if answers is not None and key is not None:
            generation = answers.generation
            live = self._live.get(key)
            if live is not None and live.done() and live.exception() is None:
                self._keep(key, live.result()[0], generation)  # its callers wake later
            if (answer := answers.get(key)) is not None:
                self._inner.submit_async([], None, priority, tenant)  # raises what any would
                self._count("cached")
                return _Share(key, None, False, generation, answer[0])
        request, sent = self._inner.share(
            [item], priority, tenant, context, admitted, self._live, key
        )
        if not sent:
            self._count("coalesced")
        return _Share(key, request, sent, generation)

    def _leave(self, share: _Share) -> None:
        if share.request is not None:
            share.request._leave(self._live, share.key)

    def _count(self, saved: str) -> None:
        with self._saved_lock:
            self._saved[saved] += 1

    def _wait(
        self,
        request: _core.FutureBase[Any],
        left: float | None,
        timeout: float | None,
        items: int,
    ) -> Any:
        """Return the output of an item for one caller. Blocks."""
        try:
            error = request.exception(left)
        except RequestTimeout:
            text = f"the request of {items} item{'s' * (items != 1)} was not answered within"
            raise RequestTimeout(f"{text} its deadline ({timeout:g} s)") from None
        if error is None:
            return request.result()[0]
        del request  # which has the exception, whose traceback has this frame
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
                share = self._join(part.key, part.item, *rest)
                request.admitted = request.admitted or share.sent
            except StreamerError as error:  # the queue is full, or the streamer closed
                request.refusal = [error]
                batch.fail(copy_error(error))
                return
            part.item = None
            if share.request is None:
                batch.complete([self._output(share.key, share.output)])
            elif request.add(share):
                share.request.add_done_callback(functools.partial(self._arrived, batch, share))
        except Exception as error:
            batch.fail(detached(error))
        except BaseException:  # a Ctrl-C is for this thread, and the item may be of another caller
            batch.fail(_interrupted())
            raise

    def _arrived(self, batch: _core.Batch, share: _Share, future: Any) -> None:
        """Answer one caller of an item: a done callback."""
        if batch.ended:
            batch.drop_ended()
            return
        try:
            error = future.exception()
            if error is not None:
                batch.fail(copy_error(error))
                return
            output = future.result()[0]
            self._keep(share.key, output, share.generation)
            batch.complete([self._output(share.key, output)])
        except Exception as error:
            batch.fail(detached(error))
        except BaseException:
            batch.fail(_interrupted())
            raise

    def _keep(self, key: Hashable | None, output: Any, generation: int) -> None:
        if key is not None and self._answers is not None:
            with contextlib.suppress(Exception):  # of the code of an output that tells its size
                self._answers.put(key, output, generation)

    def _output(self, key: Hashable | None, output: Any) -> Any:
        return copy.deepcopy(output) if self._copies and key is not None else output


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
        "_shares",
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
        self._shares: list[_Share] = []
        self._ended = False
        self.refusal: list[StreamerError] | None = None
        """why an item could not be sent; the calling thread takes it out to raise it"""
        self.admitted = admitted
        """an item was sent, so the queue refuses no other one"""
        self.priority = priority
        self.tenant = tenant
        self.context = context

    def add(self, share: _Share) -> bool:
        """Add an item. Return False if the request has ended."""
        self._shares.append(share)
        if self._ended:
            self.end()
        return not self._ended

    def end(self) -> None:
        """Leave all items. May be called more than once."""
        self._ended = True
        while self._shares:
            try:
                share = self._shares.pop()  # atomic
            except IndexError:
                break
            self._coalescer._leave(share)

    def check_may_wait(self) -> None:
        """Raise RuntimeError in a thread that runs the model: it would wait for itself."""
        for each in self._shares[:1]:
            if each.request is not None:
                each.request._check_waiter()

    @property
    def may_be_cancelled(self) -> bool:
        """True if the model has not received all items."""
        return any(each.may_be_dropped for each in list(self._shares))

    @property
    def runs(self) -> bool:
        """True if the model works on an item."""
        return any(each.runs for each in list(self._shares))


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
