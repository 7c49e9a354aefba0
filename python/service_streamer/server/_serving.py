"""Serves a hub until a signal comes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from typing import Protocol

from .._base.messages import missing_package

try:
    import httptools  # noqa: F401
    import uvicorn  # noqa: F401
    import uvloop
except ImportError as _error:
    raise missing_package(_error, "server") from _error

from ..hub import ModelHub
from ._service import Service

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_END = 5.0  # s that the fronts may take after all requests have ended


class Front(Protocol):
    """Brings the requests of one protocol to the `Service`."""

    url: str
    """the address where it listens"""

    async def start(self) -> None:
        """Listen from now on."""

    async def stop(self) -> None:
        """Refuse new requests, and wait until all that were accepted are answered."""


def serve(
    hub: ModelHub,
    service: Service,
    fronts: Callable[[], Sequence[Front]],
    *,
    say: Callable[[str], None],
    drain_timeout: float | None = None,
) -> None:
    """Serve the models of a hub until SIGTERM or Ctrl-C. Then close the hub.

    The main thread calls it, and it blocks. A second signal ends the process at once.

    Args:
        hub: the models.
        service: runs their requests.
        fronts: returns the fronts; called in the event loop.
        say: writes a line for the operator.
        drain_timeout: seconds after which the requests in flight end with an error, counted from
            the signal. None: no limit.

    Raises:
        OSError: a front cannot listen.
    """
    uvloop.run(_serve(hub, service, fronts, say, drain_timeout))


async def _serve(
    hub: ModelHub,
    service: Service,
    make_fronts: Callable[[], Sequence[Front]],
    say: Callable[[str], None],
    drain_timeout: float | None,
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def begin_stop() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        stop.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, begin_stop)
    fronts = make_fronts()
    started: list[Front] = []
    try:
        for front in fronts:
            await front.start()
            started.append(front)
            say(f"{hub!r} is served at {front.url}")
        await stop.wait()
        say("stopping: waiting for the requests in flight")
    finally:
        service.stop()
        ends = [asyncio.ensure_future(front.stop()) for front in started]
        if ends:
            await asyncio.wait(ends, timeout=drain_timeout)
        if all(each.done() for each in ends):
            await asyncio.to_thread(hub.close)
        else:
            # The requests that are still there end with an error. The fronts send it.
            await asyncio.to_thread(hub.close, False, 0)
            await asyncio.wait(ends, timeout=_END)
