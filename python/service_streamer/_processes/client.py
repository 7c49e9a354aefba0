"""The backend of a streamer in a client process, which uses the workers of another process."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
from collections.abc import Mapping
from typing import Any

from .. import _core
from .._base.errors import RequestTimeout, StreamerClosed, StreamerError
from .._base.messages import see
from .._base.options import Options
from .._engine.backend import EngineBackend, join_in_background, make_engine, weakly
from .._waiting import callbacks
from .._waiting.threads import original

_logger = logging.getLogger("service_streamer")

QUERY_TIMEOUT = 10.0  # s to wait for statistics or the reply to configure()
FIRST_PATIENCE = 5.0  # s without a first answer, after which requests end with RequestTimeout


class Client(EngineBackend):
    """A `Backend`: a local engine that queues requests, and a link that forwards them to the owner.

    It connects when it is first used. After the owner has ended, it reconnects with back-off. Until
    the owner has answered once, a request waits for `FIRST_PATIENCE` at most.

    Args:
        options: of this client.
        address: of the owner.
        name: of the model, for messages. None: the address.
        user: of the owner. None: it is not known yet.
        owner_returns: True: a new owner may listen at the address after the old one has ended;
            requests that were not forwarded wait for it. False: they raise `StreamerClosed`.
    """

    remote = True

    def __init__(
        self,
        options: Options,
        address: str,
        *,
        name: str | None = None,
        owner_returns: bool,
        user: int | None = None,
    ) -> None:
        self.address = address
        self.name = name or address
        self.owner_returns = owner_returns
        self.user = user
        self.engine = make_engine(
            # The owner's engine forms the batches and refuses what would be late.
            dataclasses.replace(options, policy="greedy", slo=None),
            workers=1,
            remote=True,
            forwards=True,
            start=weakly(self._connect),
            start_timer=_nothing,
        )
        self._lock = original("_thread", "allocate_lock")()
        self._link: _core.ClientLink | None = None
        self._closed = False  # once True, no link is created
        self._recording = False  # the owner records for this client
        self._events = b""  # of the last recording
        self._fetching = original("_thread", "allocate_lock")()

    def join(self, timeout: float | None) -> bool:
        self._fetch_events(QUERY_TIMEOUT if timeout is None else min(timeout, QUERY_TIMEOUT))
        self._closed = True
        if self._link is not None:
            self._link.stop()
        return callbacks.flush(timeout)

    def close_alone(self, drain: bool) -> None:
        self.close(drain)
        if self._link is not None:
            join_in_background(self)
        else:
            self._closed = True

    def own_this_thread(self) -> bool:
        return callbacks.in_callback()

    def stats(self, timeout: float | None = None) -> dict[str, Any]:
        if timeout == 0:
            raise StreamerError("the process that owns the streamer was not asked")
        limit = QUERY_TIMEOUT if timeout is None else timeout
        return dict(json.loads(self._ask("statistics", self._connect().stats(limit))))

    def configure(self, change: Mapping[str, Any]) -> None:
        self._ask(
            "answer to configure()", self._connect().configure(timeout=QUERY_TIMEOUT, **change)
        )

    def start_recording(self, seconds: float, max_events: int) -> int:
        started = self._connect().start_recording(seconds, max_events, QUERY_TIMEOUT)
        if started is None:
            self._ask("answer to record()", None)
        if started:
            self._events, self._recording = b"", True
        return int(bool(started))

    def finish_recording(self, number: int) -> bytes:
        self._fetch_events(QUERY_TIMEOUT)
        return self._events

    def wait_ready(self, timeout: float | None) -> bool:
        link = self._connect()
        ready = bool(link.wait_ready(timeout))
        if not ready and (error := link.connect_error()):
            raise RequestTimeout(f"{self.name} is not ready after {timeout or 0:g} s: {error}")
        return ready

    def give_up(self) -> None:
        if self._link is not None and self._link.connect_error():
            self.engine.close(False)

    def _connect(self) -> _core.ClientLink:
        link = self._link
        if link is None:
            link = self._start_link()
            if self.owner_returns and (error := link.connect_error()):
                _logger.warning(
                    "%s; requests wait %g s for it",
                    error,
                    FIRST_PATIENCE,
                    extra={"streamer": self.name, "error": error},
                )
        return link

    def _start_link(self) -> _core.ClientLink:
        if self.user not in (None, os.geteuid()):
            raise _other_user(f"{self.name} was made by a process of user {self.user}")
        with self._lock:
            if self._link is None and not self._closed:
                patience = FIRST_PATIENCE if self.owner_returns else math.inf
                link = _core.ClientLink(self.engine, self.address, self.owner_returns, patience)
                try:
                    link.start()
                except PermissionError:
                    raise _other_user(
                        f"{self.address} belongs to the process of another user"
                    ) from None
                self._link = link
                if self._closed:  # join() ran meanwhile and may not have seen the link
                    link.stop()
            if self._link is None:
                raise StreamerClosed("the streamer is closed")
            return self._link

    def _fetch_events(self, timeout: float) -> None:
        with self._fetching:
            if self._recording and self._link is not None:
                self._events = self._link.finish_recording(timeout) or b""
                self._recording = False

    def _ask(self, what: str, answer: Any) -> Any:
        if answer is None or answer is False:
            error = "" if self._link is None else self._link.connect_error()
            why = error or f"the process that owns the streamer ({self.address}) did not answer"
            raise StreamerError(f"no {what}: {why}")
        return answer


def _other_user(who: str) -> StreamerError:
    return StreamerError(
        see(
            f"{who}, and this is one of user {os.geteuid()}: only processes of the same user may "
            "use a Streamer, so run all of them as one",
            "the-streamer-of-another-user",
        )
    )


def _nothing() -> None:
    """Start nothing."""
