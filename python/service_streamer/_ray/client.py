"""The backend of a RayStreamer: an engine, and threads that send to the owner and receive."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import logging
import os
import pickle
import time
from collections.abc import Iterable, Mapping
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayError

from .. import _core, _lifecycle
from .._backend import join_in_background, make_engine, weakly
from .._errors import ClusterError, SerializationError, StreamerClosed, StreamerError, WorkerLost
from .._messages import closed, see
from .._options import Options
from .._pickle import refuse_item
from .._waiting import callbacks
from .._waiting.threads import Condition, NativeThread, original
from .._waiting.timeouts import countdown
from .calls import unpack
from .payloads import Loader, Store, stored
from .sent import Sent

_logger = logging.getLogger("service_streamer")

PACK = 1024  # most items in one call
PACK_BYTES = 32 << 20  # most bytes of large items in one call, unless one item has more
CALLS = 2  # most calls that bring requests at a time: others gather meanwhile
CANCEL_PAUSE = 0.1  # s between two looks for callers that do not wait any more
PAUSE = (0.02, 1.0)  # s between two attempts to reach the owner, the first and the longest
QUERY_TIMEOUT = 10.0  # s to wait for statistics and the like
LEAVE_PAUSE = 0.2  # s between two calls of leave() at close
CLOSE_PATIENCE = 10.0  # s for the owner to end its replicas, after the requests have ended


class RayClient:
    """A `Backend`. Its threads start with the first request.

    Args:
        options: of this client.
        owner: the handle of the actor.
        name: for messages.
        owns: True: the owner ends with this client.
        window: most items that are sent and not answered.
    """

    remote = True

    def __init__(self, options: Options, owner: Any, name: str, *, owns: bool, window: int) -> None:
        self.owns = owns
        self._owner = owner
        self._name = name
        self._retries = 1  # of the owner; asked before it matters
        self._whole = options.output == "batch"
        self._id = os.urandom(16)
        self._window = window
        self.engine = make_engine(
            dataclasses.replace(
                options,
                batch_size=1,
                policy="greedy",
                max_queue=window,
                slo=None,
                ageing=None,
                tenants=None,
                max_queue_per_tenant=None,
                grouping=None,
            ),
            workers=1,
            start=weakly(self._start),
            start_timer=weakly(self._start_timer),
        )
        self._numbers = itertools.count(1)
        self._open: dict[int, Sent] = {}  # sent and not answered
        self._waiting = 0  # items in _open
        self._received: list[int] = []  # answers that the owner may forget
        self._lock = original("_thread", "allocate_lock")()
        self._recovering = original("_thread", "allocate_lock")()
        self._times_lost = 0
        self._drains = True
        self._ending = False
        self._closed_owner = False
        self.changed = Condition()
        self._looked = 0.0
        self._calls = 0  # of put() without an answer
        self._failed: collections.deque[tuple[int, Any]] = collections.deque()
        self._sender = NativeThread(self._send, "service-streamer-sender")
        self._receiver = NativeThread(self._receive, "service-streamer-receiver")
        self._timer = NativeThread(self.engine.run_timer, "service-streamer-timer")
        _lifecycle.watch_backend(self)

    # ---------------------------------------------------------------- as any backend

    def close(self, drain: bool) -> None:
        self._drains = self._drains and drain
        self.engine.close(drain)
        self.changed.notify()

    def join(self, timeout: float | None) -> bool:
        left = countdown(timeout)
        self._ending = True
        self.changed.notify()
        if self.owns and not self._closed_owner:
            self._closed_owner = True
            patience = None if timeout is None else timeout + CLOSE_PATIENCE
            with contextlib.suppress(RayError, ValueError):
                self._owner.leave.remote(self._id)
                ray.get(self._owner.close.remote(self._drains, timeout), timeout=patience)
            with contextlib.suppress(RayError, ValueError):
                ray.kill(self._owner)
        # A call of take() may come after one of leave(), so it is said until the thread has ended.
        while not self._receiver.join(min(LEAVE_PAUSE, left() or LEAVE_PAUSE)):
            with contextlib.suppress(RayError, ValueError):
                self._owner.leave.remote(self._id)
            if left() == 0:
                return False
        if not all(thread.join(left()) for thread in (self._sender, self._timer)):
            return False
        return callbacks.flush(left())

    def close_alone(self, drain: bool) -> None:
        self.close(drain)
        join_in_background(self)

    def own_this_thread(self) -> bool:
        threads = (self._sender, self._receiver, self._timer)
        return callbacks.in_callback() or any(thread.is_current() for thread in threads)

    def stats(self, timeout: float | None = None) -> dict[str, Any]:
        if timeout == 0:
            raise StreamerError("the owner of the streamer was not asked")
        return dict(self._ask("stats", timeout=timeout))

    def configure(self, change: Mapping[str, Any]) -> None:
        self._ask("configure", dict(change))

    def start_recording(self, seconds: float, max_events: int) -> int:
        return int(self._ask("start_recording", seconds, max_events))

    def finish_recording(self, number: int) -> bytes:
        return bytes(self._ask("finish_recording", number))

    def wait_ready(self, timeout: float | None) -> bool:
        patience = None if timeout is None else timeout + QUERY_TIMEOUT
        ready = self._call("wait_ready", timeout, timeout=patience)
        if isinstance(ready, list):
            raise unpack(ready)
        return bool(ready)

    def resize(self, limits: tuple[int, int]) -> None:
        """Change the number of replicas."""
        self._ask("resize", limits)

    def replicas(self) -> list[str]:
        """Return what is known of each ready replica, as JSON."""
        return list(self._ask("replicas"))

    # --------------------------------------------------------------------- the sender

    def _send(self) -> None:
        try:
            while (first := self.engine.next_batch(None)) is not False:
                if self._failed:
                    self._recover(*self._failed.popleft())
                if first is not None:
                    self._post(self._gather(first))
        finally:
            self._end_if_open()

    def _gather(self, first: _core.Batch) -> list[Sent]:
        """Take what waits, and return the requests that are complete."""
        gathered: list[Sent] = []
        batch: Any = first
        taken = 0
        while batch:
            sent: Sent = batch.items[0]
            sent.batches.append(batch)
            if len(sent.batches) == len(sent.items):
                gathered.append(sent)
            taken += 1
            batch = self.engine.next_batch(0) if taken < PACK else None
        return gathered

    def _post(self, gathered: list[Sent]) -> None:
        numbers: list[int] = []
        store = Store()
        packed: list[list[bytes | int]] = []
        for sent in gathered:
            try:
                packed.append([self._packed(store, sent, i) for i in range(len(sent.items))])
            except Exception as error:
                sent.fail(error)
                continue
            numbers.append(self._number(sent))
            if store.size >= PACK_BYTES:
                self._dispatch(numbers, packed, store)
                numbers, packed, store = [], [], Store()
        self._dispatch(numbers, packed, store)
        if self._waiting >= self._window:
            self.changed.wait_for(lambda: self._waiting < self._window or self._ending, None)

    @staticmethod
    def _packed(store: Store, sent: Sent, index: int) -> bytes | int:
        try:
            return store.pack(sent.items[index])
        except Exception as error:
            refuse_item(error, (index, sent.items[index]))

    def _dispatch(self, numbers: list[int], packed: list[list[bytes | int]], store: Store) -> None:
        if not numbers:
            return
        sents = [self._open[number] for number in numbers]
        try:
            ref = store.put()
        except Exception as error:
            for number, sent in zip(numbers, sents, strict=True):
                if self._take_out(number) is not None:
                    failure = f"an item does not fit into Ray's object store: {error}"
                    sent.fail(SerializationError(failure))
            return
        for sent, items in zip(sents, packed, strict=True):
            sent.items = stored(items, 0)
            sent.refs = [] if ref is None else [ref]
        self._put(numbers, [] if ref is None else [ref])

    def _put(self, numbers: Iterable[int], refs: list[Any]) -> None:
        """Send requests to the owner. Waits while there are `CALLS` calls without an answer."""
        lost = self._times_lost
        with self._lock:
            self._calls += 1
        ack = self._call_put(numbers, refs)
        ack.future().add_done_callback(functools.partial(self._acknowledge, lost))
        self.changed.wait_for(lambda: self._calls < CALLS or self._ending, None)

    def _acknowledge(self, lost: int, future: Any) -> None:
        """Called by a thread of Ray."""
        error = future.exception()
        with self._lock:
            self._calls -= 1
        if error is not None:
            self._failed.append((lost, error))
            self.engine.ring()  # the sender may wait for requests
        self.changed.notify()

    def _call_put(self, numbers: Iterable[int], refs: list[Any]) -> Any:
        requests = []
        for number in numbers:
            sent = self._open.get(number)
            if sent is not None:
                rest = sent.left(), sent.priority, sent.tenant, sent.context
                requests.append((number, *rest, sent.items, sent.traits))
        with self._lock:
            received, self._received = self._received, []
        message = pickle.dumps((requests, self._unwanted()), 5)
        return self._owner.put.remote(self._id, message, refs, received)

    def _unwanted(self) -> list[int]:
        """Return the requests to be cancelled: their callers do not wait any more."""
        now = time.monotonic()
        if now < self._looked + CANCEL_PAUSE:
            return []
        self._looked = now
        unwanted = [number for number, sent in list(self._open.items()) if sent.ended]
        for number in unwanted:
            self._take_out(number)
        return unwanted

    # ------------------------------------------------------------------- the receiver

    def _receive(self) -> None:
        try:
            while not self._ending:
                lost = self._times_lost
                with self._lock:
                    received, self._received = self._received, []
                try:
                    message = ray.get(self._owner.take.remote(self._id, received))
                except RayError as error:
                    if not self._recover(lost, error):
                        return
                    continue
                if message is not None:
                    self._deliver(*message)
        finally:
            self._end_if_open()

    def _deliver(self, answers: bytes, refs: list[Any]) -> None:
        every = pickle.loads(answers)
        try:
            loader = Loader(refs)
        except RayError as lost:  # the node with the outputs has died
            self._renew([number for number, *_ in every], lost)
            return
        for number, outputs, error in every:
            sent = self._take_out(number)
            with self._lock:
                self._received.append(number)
            if sent is None:
                continue
            if outputs is None:
                sent.fail(unpack(error))
                continue
            try:
                values = [loader.load(each) for each in outputs]
            except Exception as error:
                text = f"an output cannot be unpickled here: {type(error).__name__}: {error}"
                sent.fail(SerializationError(text))
                continue
            sent.complete([value if self._whole else [value] for value in values])
        self.changed.notify()

    def _renew(self, numbers: list[int], error: RayError) -> None:
        """Send answered requests again, as new ones: their outputs are lost."""
        with self._lock:
            self._received += numbers
        for number in numbers:
            sent = self._take_out(number)
            if sent is not None and self._retries == 0:
                sent.fail(WorkerLost(f"the outputs of the request were lost: {error}"))
            elif sent is not None:
                self._put([self._number(sent)], sent.refs)

    def _number(self, sent: Sent) -> int:
        number = next(self._numbers)
        with self._lock:
            self._open[number] = sent
            self._waiting += len(sent.items)
        return number

    def _take_out(self, number: int) -> Sent | None:
        with self._lock:
            sent = self._open.pop(number, None)
            if sent is not None:
                self._waiting -= len(sent.items)
        return sent

    # ---------------------------------------------------------------------- recovery

    def _recover(self, lost: int, error: RayError) -> bool:
        """Wait until the owner is there again, and send again what is open; False: it has ended.

        Args:
            lost: how often the owner had been lost when the call was made.
            error: of the call.
        """
        with self._recovering:
            if self._times_lost != lost:
                return not self._ending
            pause, longest = PAUSE
            while not self._ending:
                try:
                    self._retries = ray.get(self._owner.join.remote(self._id))
                    ray.get(self._send_again(list(self._open), error))
                except ActorUnavailableError:
                    self.changed.wait_for(lambda: self._ending, pause)
                    pause = min(longest, 2 * pause)
                except RayError as ended:
                    self._give_up(ended)
                else:
                    self._times_lost += 1
                    return True
            return False

    def _send_again(self, numbers: list[int], error: RayError) -> list[Any]:
        """Send requests again that may be lost, and return the calls that bring them."""
        calls = []
        for number in numbers:
            if self._retries == 0:
                if (sent := self._take_out(number)) is not None:
                    sent.fail(WorkerLost(f"the owner of the batches was lost: {error}"))
            elif (open_ := self._open.get(number)) is not None:
                calls.append(self._call_put([number], open_.refs))
        return calls

    def _give_up(self, error: RayError) -> None:
        """End all requests: the owner will not come back."""
        self._ending = True
        self.engine.close(False)
        text = f"{closed(self._name)} (its owner has ended: {error})"
        _logger.error(
            "%s: the owner has ended: %s", self._name, error, extra={"streamer": self._name}
        )
        for number in list(self._open):
            if (sent := self._take_out(number)) is not None:
                sent.fail(StreamerClosed(text))
        self.engine.abort()
        self.changed.notify()

    # ----------------------------------------------------------------------- private

    def _start(self) -> None:
        self._sender.start()
        self._receiver.start()

    def _start_timer(self) -> None:
        self._timer.start()

    def _end_if_open(self) -> None:
        """End the requests if a thread has ended by an exception."""
        if not self._ending and not self.engine.closed():
            self.engine.close(False)
            self.engine.abort()

    def _ask(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        return self._call(method, *args, timeout=QUERY_TIMEOUT if timeout is None else timeout)

    def _call(self, method: str, *args: Any, timeout: float | None) -> Any:
        left = countdown(timeout)
        pause, longest = PAUSE
        while True:
            if self._ending:
                raise StreamerClosed(closed(self._name))
            try:
                return ray.get(getattr(self._owner, method).remote(*args), timeout=left())
            except GetTimeoutError:
                break
            except ActorUnavailableError:  # it is starting again
                self.changed.wait_for(lambda: self._ending, pause)
                pause = min(longest, 2 * pause)
            except RayActorError as error:
                text = f"the owner of {self._name} has ended: {error}"
                raise ClusterError(see(text, "clustererror")) from error
            if left() == 0:
                break
        raise StreamerError(f"the owner of {self._name} did not answer {method}()")
