"""Serves the web interface of a streamer from a thread of the command's process."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from .._messages import missing_package
from .logs import say
from .options import CommandError

_STOP = 5.0  # s that open connections may take to end


class HttpServer:
    """Listens from the constructor on, and serves between `start` and `stop`.

    Args:
        place: host and port.
        option: of the command, which gives the place.

    Raises:
        CommandError: a library is missing, or it cannot listen there.
    """

    def __init__(self, place: tuple[str, int], option: str) -> None:
        try:
            import uvicorn

            from ..web._app import make_app
            from ..web._site import Site
        except ImportError as error:
            missing = missing_package(error, "web", "uvicorn")
            raise CommandError(f"{option}: {missing}") from None
        self._make_site = Site
        self._make_app = make_app
        self._uvicorn: Any = uvicorn
        host, port = place
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._socket = socket.create_server(place, family=family)
        except OSError as error:
            why = error.strerror or str(error)
            raise CommandError(f"{option}: cannot listen at {host}:{port}: {why}") from None
        # a forked worker, or what its model starts, would keep the port in use
        os.register_at_fork(after_in_child=self._socket.close)
        self._server: Any = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it serves."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    def start(
        self, shown: Any, control: str | None = None, collector: Callable[[], Any] | None = None
    ) -> None:
        """Serve the web interface of a streamer, worker or hub, and log its URL.

        Args:
            shown: what the pages show.
            control: the token that changes need. None: nothing can be changed.
            collector: makes a collector of more metrics, which needs prometheus-client.
        """
        site = self._make_site(shown, control)
        if collector is not None:
            with contextlib.suppress(ImportError):  # then ``/metrics`` tells what is missing
                site.collected.add(collector())
        config = self._uvicorn.Config(
            self._make_app(site),
            log_config=None,  # so its log goes where the log of this process goes
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        self._server = self._uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run,
            args=([self._socket],),
            name="service-streamer-http",
            daemon=True,
        )
        self._thread.start()
        say(f"the web interface is at {self.url}")

    def stop(self) -> None:
        """Close it. Waits a short time for open connections."""
        if self._server is not None and self._thread is not None:
            # it would log a traceback for each open stream of events
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
            self._server.should_exit = True
            self._thread.join(_STOP)
        self._socket.close()


@contextlib.contextmanager
def http_server(
    place: tuple[str, int] | None, option: str = "--http"
) -> Iterator[HttpServer | None]:
    """Return the server for an option, or None without that option. It stops at the end."""
    if place is None:
        yield None
        return
    server = HttpServer(place, option)
    try:
        yield server
    finally:
        server.stop()
