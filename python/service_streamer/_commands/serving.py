"""A streamer that serves until a signal comes, and then answers what it has accepted."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from typing import Any, NoReturn

from .._waiting import signals
from .http import http_server
from .logs import say
from .options import Place

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Stop(BaseException):
    """Raised in the main thread by SIGTERM or Ctrl-C."""


def serve_until_signal(
    make: Callable[[], Any],
    where: Callable[[Any], str],
    http: Place | None,
    drain_timeout: float | None,
) -> None:
    """Make a streamer, say where it is served, and block until a signal; then drain it.

    Args:
        make: returns the streamer.
        where: returns the sentence for the log, when the model is loaded.
        http: host and port of the web interface, which also answers during the drain. None: none.
        drain_timeout: most seconds of the drain. None: no limit.

    Raises:
        StreamerError: the model cannot be loaded.
        CommandError: the web interface cannot be served.
    """
    for number in _SIGNALS:
        signal.signal(number, _stop)
    with contextlib.suppress(_Stop), http_server(http) as server:
        streamer = make()
        try:
            if server is not None:
                server.start(streamer)
            streamer.wait_ready()
            say(where(streamer))
            signals.wait()
        except _Stop:
            say("stopping: waiting for the requests in flight")
            streamer.close(timeout=drain_timeout)
        except BaseException:
            streamer.close(drain=False, timeout=0)
            raise


def _stop(number: int, frame: Any) -> NoReturn:
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_DFL)
    raise _Stop
