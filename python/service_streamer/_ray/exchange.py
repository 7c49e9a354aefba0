"""The exchange of a client with the owner: one thread sends requests, and one receives answers.

::

    engine ── sender ──> put() of the owner        a call returns at once
    callers <── receiver ── take() of the owner    a call waits for answers

While a call of put() is under way, further requests gather, and leave together. If the owner is
lost, the first thread that notices waits until Ray has started it again, and sends all requests
again that are not answered. They keep their numbers, so an owner that was only out of reach runs
nothing twice.
"""

from __future__ import annotations

import collections
import functools
import itertools
import logging
import os
import pickle
import time
from collections.abc import Iterable
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayError

from .. import _core
from .._errors import SerializationError, StreamerClosed, WorkerLost
from .._messages import closed
from .._waiting.threads import Condition, NativeThread, original
from .calls import unpack
from .outgoing import Outgoing
from .payloads import Loader
from .sent import Sent

_logger = logging.getLogger("service_streamer")

CALLS = 2  # most calls of put() at a time
CANCEL_PAUSE = 0.1  # s between two looks for callers that do not wait any more
PAUSE = (0.02, 1.0)  # s between two attempts to reach the owner, the first and the longest


class Exchange:
    """Any thread may call the public methods.

    Args:
        engine: of the client; its batches have one item each.
        owner: the handle of the actor.
        name: of the streamer, for messages.
        window: most items that are sent and not answered.
        whole: an output is a slice, of one row.
    """

    def __init__(
        self, engine: _core.Engine, owner: Any, name: str, window: int, whole: bool
    ) -> None:
        self._engine = engine
        self._owner = owner
        self._name = name
        self._window = window
        self._whole = whole
        self.client = os.urandom(16)
        """the id of this client"""
        self.ending = False
        """True: the threads end"""
        self.changed = Condition()
        """notified when anything here changes"""
        self._retries = 1  # of the owner; asked before it matters
        self._lock = original("_thread", "allocate_lock")()
        self._numbers = itertools.count(1)
        self._open: dict[int, Sent] = {}  # sent and not answered
        self._waiting = 0  # items in _open
        self._received: list[int] = []  # answers that the owner may forget
        self._outgoing = Outgoing(engine)
        self._looked = 0.0
        self._calls = 0  # of put(), without an answer
        self._failed: collections.deque[tuple[int, Any]] = collections.deque()
        self._recovering = original("_thread", "allocate_lock")()
        self._times_lost = 0
        self.sender = NativeThread(self._send, "service-streamer-sender")
        self.receiver = NativeThread(self._receive, "service-streamer-receiver")

    def start(self) -> None:
        """Start the threads; may be called again."""
        self.sender.start()
        self.receiver.start()

    def end(self) -> None:
        """Let the threads end. Does not wait."""
        self.ending = True
        self.changed.notify()

    # --------------------------------------------------------------------- the sender

    def _send(self) -> None:
        try:
            while (first := self._engine.next_batch(None)) is not False:
                if self._failed:
                    self._recover(*self._failed.popleft())
                if first is not None:
                    for sents, refs in self._outgoing.packs(first):
                        self._put([self._number(sent) for sent in sents], refs)
                self.changed.wait_for(lambda: self._waiting < self._window or self.ending, None)
        finally:
            self._end_all_if_open()

    def _put(self, numbers: Iterable[int], refs: list[Any]) -> None:
        """Send requests to the owner. Waits while there are `CALLS` calls without an answer."""
        lost = self._times_lost
        with self._lock:
            self._calls += 1
        call = self._call_put(numbers, refs)
        call.future().add_done_callback(functools.partial(self._acknowledge, lost))
        self.changed.wait_for(lambda: self._calls < CALLS or self.ending, None)

    def _acknowledge(self, lost: int, future: Any) -> None:
        """Called by a thread of Ray, which must not block."""
        error = future.exception()
        with self._lock:
            self._calls -= 1
        if error is not None:
            self._failed.append((lost, error))
            self._engine.ring()  # the sender may wait for requests
        self.changed.notify()

    def _call_put(self, numbers: Iterable[int], refs: list[Any]) -> Any:
        requests = []
        for number in numbers:
            sent = self._open.get(number)
            if sent is not None:
                rest = sent.left(), sent.priority, sent.tenant, sent.context
                requests.append((number, *rest, sent.items, sent.traits))
        message = pickle.dumps((requests, self._unwanted()), 5)
        return self._owner.put.remote(self.client, message, refs, self._take_received())

    def _unwanted(self) -> list[int]:
        """Return the requests to be cancelled: their callers do not wait any more."""
        now = time.monotonic()
        if now < self._looked + CANCEL_PAUSE:
            return []
        self._looked = now
        unwanted = [number for number, sent in list(self._open.items()) if sent.ended]
        for number in unwanted:
            if (sent := self._take_out(number)) is not None:
                sent.release()
        return unwanted

    # ------------------------------------------------------------------- the receiver

    def _receive(self) -> None:
        try:
            while not self.ending:
                lost = self._times_lost
                call = self._owner.take.remote(self.client, self._take_received())
                try:
                    message = ray.get(call)
                except RayError as error:
                    self._recover(lost, error)
                    continue
                if message is not None:
                    self._deliver(*message)
        finally:
            self._end_all_if_open()

    def _deliver(self, answers: bytes, refs: list[Any]) -> None:
        loader = Loader(refs)
        for number, outputs, failure in pickle.loads(answers):
            sent = self._take_out(number)
            with self._lock:
                self._received.append(number)
            if sent is None:
                continue
            if outputs is None:
                sent.fail(unpack(failure))
                continue
            try:
                values = [loader.load(each) for each in outputs]
            except RayError as lost:  # the node with the outputs has died
                self._renew(sent, lost)
                continue
            except Exception as error:
                text = f"an output cannot be unpickled here: {type(error).__name__}: {error}"
                sent.fail(SerializationError(text))
                continue
            sent.complete([value if self._whole else [value] for value in values])
        self.changed.notify()

    def _renew(self, sent: Sent, error: RayError) -> None:
        """Send an answered request again, as a new one: its outputs are lost."""
        if self._retries == 0:
            sent.fail(WorkerLost(f"the outputs of the request were lost: {error}"))
        else:
            self._put([self._number(sent)], sent.refs)

    # ------------------------------------------------------------------------ recovery

    def _recover(self, lost: int, error: RayError) -> None:
        """Wait until the owner is there again, and send again what is open.

        Args:
            lost: how often the owner had been lost when the call was made.
            error: of the call.
        """
        with self._recovering:
            pause, longest = PAUSE
            while self._times_lost == lost and not self.ending:
                try:
                    self._retries = ray.get(self._owner.join.remote(self.client))
                    ray.get(self._send_again(list(self._open), error))
                except ActorUnavailableError:
                    self.changed.wait_for(lambda: self.ending, pause)
                    pause = min(longest, 2 * pause)
                except RayError as ended:
                    self._give_up(ended)
                else:
                    self._times_lost += 1

    def _send_again(self, numbers: list[int], error: RayError) -> list[Any]:
        """Send requests again that may be lost, and return the calls that bring them."""
        calls = []
        for number in numbers:
            if self._retries == 0:
                if (sent := self._take_out(number)) is not None:
                    sent.fail(WorkerLost(f"the owner of the batches was lost: {error}"))
            elif (again := self._open.get(number)) is not None:
                calls.append(self._call_put([number], again.refs))
        return calls

    def _give_up(self, error: RayError) -> None:
        """End all requests: the owner will not come back."""
        self.ending = True
        self._engine.close(False)
        about = {"streamer": self._name, "error": str(error)}
        _logger.error("%s: the owner has ended: %s", self._name, error, extra=about)
        for number in list(self._open):
            if (sent := self._take_out(number)) is not None:
                sent.fail(StreamerClosed(f"{closed(self._name)} (its owner has ended: {error})"))
        self._engine.abort()
        self.changed.notify()

    # ------------------------------------------------------------------- open requests

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

    def _take_received(self) -> list[int]:
        with self._lock:
            received, self._received = self._received, []
        return received

    def _end_all_if_open(self) -> None:
        """End the requests if a thread has ended by an exception."""
        if not self.ending and not self._engine.closed():
            self._engine.close(False)
            self._engine.abort()
