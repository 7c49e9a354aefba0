"""The owner: the actor with the engine, which forms the batches of all clients.

Clients call it, and it never calls them: `put` brings requests, and `take` waits for answers. A
request has a number of its client. So a client can send a request again when it is not sure that
it arrived, and gets one answer. An answer is kept until the client says that it has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import pickle
import time
from collections.abc import Mapping
from typing import Any

from ray import ObjectRef

from ..._base.errors import StreamerClosed
from ..._base.messages import closed
from ..._base.options import Options
from ..._engine.backend import make_engine
from ..._waiting.threads import NativeThread
from ..calls import QueuedItem, pack
from ..payloads import Packed, from_message
from ..settings import RaySettings
from .answers import Answers, Message
from .pool import Pool

PARK = 60.0  # s that `take` waits at most; a client that does not call again then is gone
RECEIPT = 5.0  # s that `close` waits at most until the clients have their answers

Request = tuple[
    int,  # its number
    "float | None",  # seconds until its deadline
    int,  # priority
    "str | None",  # tenant
    "bytes | None",  # context
    list[Packed],
    "tuple[list[int], list[float]] | None",  # keys and weights of the items
]


class Owner:
    """An actor; its methods run in one event loop.

    Args:
        packed: the pickled model.
        name: of the model.
        options: of the engine; items are `QueuedItem` objects.
        output_batch: callers get slices of what the model returns.
        settings: of the replicas.
    """

    def __init__(
        self,
        packed: bytes,
        name: str,
        options: Options,
        output_batch: bool,
        settings: RaySettings,
    ) -> None:
        self._name = name
        self._retries = settings.retries
        self._clients: dict[bytes, Answers] = {}
        self._numbers = 0  # of clients
        self._watching = False  # clients that do not call any more will be dropped
        self._called = asyncio.Event()  # by a client
        self._changes: dict[str, Any] = {}  # that were made by `configure`
        self._closed = False
        self.engine = make_engine(
            options,
            workers=settings.limits[0],
            start=_nothing,
            start_timer=self._start_timer,
        )
        self._timer = NativeThread(self.engine.run_timer, "service-streamer-timer")
        self._pool = Pool(
            self.engine,
            name,
            packed,
            options,
            output_batch,
            settings,
            self._flush,
        )

    # ------------------------------------------------------------------- for clients

    async def join(self, client: bytes, changes: Mapping[str, Any]) -> tuple[bytes, int]:
        """Begin, or go on after an interruption: give answers again that may be lost.

        Args:
            client: its id.
            changes: that it has made by `configure`; this owner may be a new one.

        Returns:
            A token that `put` and `take` must have, until the next call of this; and ``retries``.
        """
        lost = {name: value for name, value in changes.items() if name not in self._changes}
        if lost:
            await self.configure(lost)
        answers = self._clients.get(client)
        if answers is None:
            self._numbers += 1
            answers = Answers(self._numbers, asyncio.get_running_loop())
            self._clients[client] = answers
            self._watch_clients()
        answers.give_again()
        return answers.token, self._retries

    async def put(
        self, client: bytes, token: bytes, requests: bytes, refs: list[ObjectRef[Any]]
    ) -> bool:
        """Take requests of a client.

        Args:
            client: its id.
            token: that `join` returned.
            requests: a pickled pair: a list of `Request`, and the numbers of those to be cancelled.
            refs: the objects of the store that the items refer to.

        Returns:
            False if the client must join again, as the token is an old one.
        """
        answers = self._answers_of(client, token)
        if answers is None:
            return False
        sent, cancelled = pickle.loads(requests)
        for request in sent:
            self._submit(answers, request, refs)
        answers.cancel(cancelled)
        return True

    async def take(self, client: bytes, token: bytes, received: list[int]) -> Message | None:
        """Wait for answers, and return them; after a while there may be none.

        Args:
            client: its id.
            token: that `join` returned.
            received: the numbers of the answers that it has.

        Returns:
            None if the client must join again, as the token is an old one.
        """
        answers = self._answers_of(client, token)
        if answers is None:
            return None
        answers.forget(received)
        self._called.set()
        return await answers.take(PARK)

    async def leave(self, client: bytes) -> None:
        """Forget a client, and cancel what it has not got."""
        answers = self._clients.pop(client, None)
        if answers is not None:
            answers.end()
        self._called.set()

    # --------------------------------------------------------------------- for control

    async def stats(self) -> dict[str, Any]:
        """Return the values for `StreamerStats.from_engine`."""
        values, members = self.engine.stats(), self._pool.members
        counts = {"workers": members.count(), "worker_restarts": members.restarts}
        return {**values, **counts, "obstacle": members.obstacles.about()}

    async def configure(self, change: Mapping[str, Any]) -> None:
        """Change settings of the engine, or the limits of the ``replicas``."""
        of_engine = dict(change)
        limits = of_engine.pop("replicas", None)
        self.engine.configure(**of_engine)
        if limits is not None:
            self._pool.resize(limits)
        self._changes.update(change)

    async def wait_ready(self, timeout: float | None) -> bool | list[Any]:
        """Wait for the replicas: True, or False on timeout, or a packed error."""
        try:
            return await self._pool.members.wait_ready(timeout)
        except Exception as error:
            return pack(error)

    async def replicas(self) -> list[str]:
        """Return what is known of each ready replica, as JSON."""
        return self._pool.members.about()

    async def start_recording(self, seconds: float, max_events: int) -> int:
        """Do what ``Engine.start_recording`` does."""
        return self.engine.start_recording(seconds, max_events)

    async def finish_recording(self, number: int) -> bytes:
        """Do what ``Engine.finish_recording`` does."""
        return self.engine.finish_recording(number)

    async def close(self, drain: bool, timeout: float | None) -> None:
        """End all requests, wait until the clients have the answers, and end the replicas."""
        self._closed = True
        self.engine.close(drain)
        if not await asyncio.to_thread(self.engine.join, timeout):
            self.engine.abort()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._all_received(), RECEIPT)
        await asyncio.to_thread(self._pool.stop)

    # -------------------------------------------------------------------------- private

    async def _all_received(self) -> None:
        while not all(answers.are_received for answers in self._clients.values()):
            self._called.clear()
            await self._called.wait()

    def _answers_of(self, client: bytes, token: bytes) -> Answers | None:
        answers = self._clients.get(client)
        return answers if answers is not None and answers.token == token else None

    def _submit(self, answers: Answers, request: Request, refs: list[ObjectRef[Any]]) -> None:
        number, left, priority, tenant, context, packed, traits = request
        if answers.knows(number):
            return
        keys, weights = traits or ([0] * len(packed), [1.0] * len(packed))
        payloads = from_message(packed, refs)
        pieces = [
            QueuedItem(payload, answers.number, key, weight)
            for payload, key, weight in zip(payloads, keys, weights, strict=True)
        ]
        limit = None if left is None else max(0.0, left)
        try:
            if self._closed:
                raise StreamerClosed(closed(self._name))
            future = self.engine.submit_async(pieces, limit, priority, tenant, context)
        except Exception as error:
            answers.refuse(number, pack(error))
            return
        answers.expect(number, future)
        future.add_done_callback(functools.partial(answers.ended, number))

    def _flush(self) -> None:
        for answers in list(self._clients.values()):
            answers.flush()

    def _watch_clients(self) -> None:
        if not self._watching and self._clients:
            self._watching = True
            asyncio.get_running_loop().call_later(PARK, self._drop_gone)

    def _drop_gone(self) -> None:
        limit = time.monotonic() - 2 * PARK
        for client, answers in list(self._clients.items()):
            if answers.seen < limit:
                del self._clients[client]
                answers.end()
        self._watching = False
        self._watch_clients()

    def _start_timer(self) -> None:
        self._timer.start()


def _nothing() -> None:
    """Do nothing: the replicas are started already."""
