"""The exchange of a client with the owner: one thread sends requests, and one receives answers.

::

    engine ── sender ──> put() of the owner        a call returns at once
    callers <── receiver ── take() of the owner    a call waits for answers

While a call of put() is under way, further requests gather, and leave together. So they arrive in
their order. The first call is join(), which returns a token of the owner: a restarted owner, or one
that has forgotten this client, refuses other tokens. If that happens, or a call fails, the first
thread that notices joins again, and sends all requests again that are not answered. They keep
their numbers, so an owner that was only out of reach runs nothing twice.
"""

from __future__ import annotations

import collections
import functools
import logging
import os
import pickle
from typing import Any

from ray.exceptions import (
    ActorUnavailableError,
    GetTimeoutError,
    ObjectLostError,
    RayActorError,
    RayError,
)

from ... import _core
from ..._base.errors import SerializationError, StreamerClosed, WorkerLost
from ..._base.messages import closed, describe
from ..._engine.pickling import unpack_error
from ..._waiting.backoff import Backoff
from ..._waiting.threads import Condition, original
from .. import cluster
from ..owner.actor import PARK
from ..payloads import PayloadReader
from .outgoing import PACK, Outgoing
from .sent import OpenRequests, SentRequest

_logger = logging.getLogger("service_streamer")

PAUSE = 0.02  # s between the first two attempts to reach the owner
ANSWER = 30.0  # s for the owner to answer; then it may be on a node that is cut off
SETTLE = 0.2  # s before the first attempt after a call that failed
FORGOTTEN = "it was started again, or had not heard of this client for long"


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
        self.changes: dict[str, Any] = {}
        """all changes by ``Owner.configure``: a new owner does not know them"""
        self.ending = False
        self.changed = Condition()
        """notified when anything here changes"""
        self._token: bytes | None = None  # of the owner; None: before the first join()
        self._retries = 0  # of the owner
        self._open = OpenRequests()
        self._outgoing = Outgoing(engine)
        self._putting = False  # a call of put() has no answer
        self._put_call: Any = None  # the last one
        self._recovering = original("_thread", "allocate_lock")()
        # What other threads leave for the sender: calls that failed, requests to be sent again, and
        # requests to be cancelled.
        self._failed: collections.deque[tuple[bytes | None, object]] = collections.deque()
        self._again: collections.deque[int] = collections.deque()
        self._unwanted: collections.deque[int] = collections.deque()

    def end(self) -> None:
        """Let the threads end. Does not wait."""
        self.ending = True
        self.changed.notify()

    def cancel(self, sent: SentRequest) -> None:
        """Note that the caller does not wait any more. Does nothing if it has its answer."""
        if sent.number in self._open:
            self._unwanted.append(sent.number)
            self._wake_sender()

    # --------------------------------------------------------------------- the sender

    def wait_for_room(self) -> None:
        """Wait until less than the window is sent and not answered."""
        while not self._has_room():
            self.changed.wait_for(lambda: self._has_room() or self._is_asked(), None)
            self.attend()

    def attend(self) -> None:
        """Do what other threads have left for the sender."""
        while self._failed:
            self.recover(*self._failed.popleft())
        if self._again or self._unwanted:
            self._put(_drain(self._again))

    def send(self, first: _core.Batch) -> None:
        """Send what the engine has, from this batch on."""
        for sents in self._outgoing.packs(first):
            self._put([self._open.add(sent) for sent in sents])

    def wait_for_end(self) -> None:
        """Wait for `end`: the engine is closed, but not all is answered."""
        while not self.ending:
            self.changed.wait_for(lambda: self.ending or self._is_asked(), None)
            self.attend()

    def _has_room(self) -> bool:
        return self._open.items < self._window or self.ending

    def _is_asked(self) -> bool:
        return bool(self._failed or self._again or self._unwanted)

    def _wake_sender(self) -> None:
        self._engine.ring()  # it may wait for requests
        self.changed.notify()

    def _put(self, numbers: list[int]) -> None:
        """Send requests to the owner, and what is to be cancelled. Waits for the answer."""
        with self._recovering:  # a recovery of the other thread sends older requests first
            token = self._token  # read after the requests got their numbers: see recover()
            call = self._call_put(token, numbers, _drain(self._unwanted))
        if call is None:
            return
        self._putting = True
        self._put_call = call  # Ray's thread could drop the last reference during its shutdown
        call.future().add_done_callback(functools.partial(self._acknowledge, token))
        self.changed.wait_for(lambda: not self._putting or self.ending, None)

    def _acknowledge(self, token: bytes | None, future: Any) -> None:
        """Called by a thread of Ray, which must not block."""
        error = future.exception()
        if error is not None or not future.result():
            self._failed.append((token, error or FORGOTTEN))
            self._engine.ring()
        self._putting = False
        self.changed.notify()

    def _call_put(self, token: bytes | None, numbers: list[int], unwanted: list[int]) -> Any:
        """Return the call, or None if Ray refuses the message: then these requests have failed."""
        try:
            message, refs = self._open.message(numbers, unwanted)
            return self._owner.put.remote(self.client, token, message, refs)
        except Exception as error:  # for example, the object store is full
            self._open.refuse(numbers, error)
            return None

    # ------------------------------------------------------------------- the receiver

    def receive(self) -> None:
        """Receive answers until `end`: the receiver thread."""
        try:
            self.recover(None, "")
            received: list[int] = []
            while not self.ending:
                token = self._token
                try:
                    call = self._owner.take.remote(self.client, token, received)
                    message = cluster.get(call, PARK + ANSWER)
                except RayError as error:
                    self.recover(token, error)
                    continue
                if message is None:
                    self.recover(token, FORGOTTEN)
                else:
                    received = self._deliver(*message)
        finally:
            if not self.ending:  # by an exception, also while the streamer closes
                self._engine.close(False)
                self._engine.abort()

    def _deliver(self, answers: bytes, refs: list[Any]) -> list[int]:
        """End requests, and return their numbers: the owner may forget them."""
        every = pickle.loads(answers)
        loader = PayloadReader(refs)
        for number, outputs, failure in every:
            sent = self._open.take_out(number)
            if sent is None:
                continue
            try:
                if outputs is None:
                    sent.fail(unpack_error(failure))
                else:
                    values = [loader.load(each) for each in outputs]
                    sent.complete([value if self._whole else [value] for value in values])
            except ObjectLostError as error:  # for example, the node with the outputs has died
                self._renew(sent, error)
            except cluster.Left as error:
                sent.fail(self._closed_by(error))
            except BaseException as error:  # unpickling runs code of the user
                text = f"an output cannot be unpickled here: {describe(error)}"
                sent.fail(SerializationError(text))
        self.changed.notify()
        return [number for number, *_ in every]

    def _renew(self, sent: SentRequest, error: ObjectLostError) -> None:
        """Let an answered request run again, as a new one: its outputs are lost."""
        if sent.renewals >= self._retries:
            sent.fail(WorkerLost(f"the outputs of the request were lost: {error}"))
            return
        sent.renewals += 1
        self._again.append(self._open.add(sent))
        self._wake_sender()

    # ------------------------------------------------------------------------ recovery

    def recover(self, token: bytes | None, error: object) -> None:
        """Join the owner, and send again what is open. Waits until the owner is there.

        Does nothing if another thread has done that. A request that got its number before the new
        token was there is sent here. A later one is sent with the new token.

        Args:
            token: that of the call that failed; None: there was no call.
            error: of the call.
        """
        with self._recovering:
            backoff = Backoff(PAUSE)
            recovered = self._token != token
            if not recovered and token is not None:
                # ray.shutdown() ends calls a moment before Ray tells it. A call then may hang.
                self.changed.wait_for(lambda: self.ending, SETTLE)
            while not recovered and not self.ending:
                try:
                    call = self._owner.join.remote(self.client, self.changes)
                    joined = cluster.get(call, ANSWER)
                    self._token, self._retries = joined
                    recovered = self._send_again(error)
                except (ActorUnavailableError, GetTimeoutError):
                    self.changed.wait_for(lambda: self.ending, backoff.next())
                except RayError as ended:
                    self._give_up(ended)

    def _send_again(self, error: object) -> bool:
        """Send requests again that may be lost; return False if the owner has changed meanwhile."""
        numbers = self._open.numbers()
        if self._retries == 0:
            for number in numbers:
                self._open.fail(number, WorkerLost(f"the owner of the batches was lost: {error}"))
            return True
        for begin in range(0, len(numbers), PACK):
            some = numbers[begin : begin + PACK]
            call = self._call_put(self._token, some, [])
            try:
                if call is not None and not cluster.get(call, ANSWER):
                    return False
            except (RayActorError, GetTimeoutError):
                raise
            except RayError as refused:
                self._open.refuse(some, refused)
        return True

    def _give_up(self, error: RayError) -> None:
        """End all requests: the owner will not come back."""
        self.ending = True
        self._engine.close(False)
        about = {"streamer": self._name, "error": str(error)}
        _logger.error("%s: the owner has ended: %s", self._name, error, extra=about)
        for number in self._open.numbers():
            self._open.fail(number, self._closed_by(error))
        self._engine.abort()
        self.changed.notify()

    def _closed_by(self, error: RayError) -> StreamerClosed:
        return StreamerClosed(f"{closed(self._name)} (its owner has ended: {error})")


def _drain(numbers: collections.deque[int]) -> list[int]:
    """Return what is there, and remove it. Other threads may append meanwhile."""
    return [numbers.popleft() for _ in range(len(numbers))]
