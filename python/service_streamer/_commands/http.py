"""Serves the web interface of a streamer from a thread of the command's process."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from typing import Any

from .._base.messages import missing_package
from .logs import say
from .options import UNIX, CommandError, Place

BACKLOG = 2048  # connections that wait to be accepted
_STOP = 5.0  # s that open connections may take to end


def listen(place: Place, option: str) -> socket.socket:
    """Return a socket that listens. `end_listening` ends that.

    Args:
        place: where.
        option: of the command, which gives the place.

    Raises:
        CommandError: it cannot listen there.
    """
    host, port = place
    try:
        if host.startswith(UNIX):
            listener = _listen_at_path(host.removeprefix(UNIX))
        else:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            both = host == "::" and socket.has_dualstack_ipv6()
            listener = socket.create_server(
                place, family=family, backlog=BACKLOG, dualstack_ipv6=both
            )
    except OSError as error:
        why = error.strerror or str(error)
        raise CommandError(f"{option}: cannot listen at {shown(place)}: {why}") from None
    # a forked worker, or what its model starts, would keep the port in use
    os.register_at_fork(after_in_child=listener.close)
    return listener


def shown(place: Place) -> str:
    """Return a place as the command line has it."""
    host, port = place
    return host if host.startswith(UNIX) else f"{host}:{port}"


def end_listening(listener: socket.socket, place: Place) -> None:
    """Close a socket of `listen`, which a server may have closed. Removes its path."""
    if place[0].startswith(UNIX):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place[0].removeprefix(UNIX))
    listener.close()


def url_of(listener: socket.socket, tls: bool) -> str:
    """Return where a socket of `listen` listens."""
    if listener.family == socket.AF_UNIX:
        return f"{UNIX}{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def _listen_at_path(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    try:
        try:
            listener.bind(path)
        except OSError:
            with socket.socket(socket.AF_UNIX) as probe:  # of a server that was killed?
                is_socket = stat.S_ISSOCK(os.lstat(path).st_mode)
                if not is_socket or probe.connect_ex(path) != errno.ECONNREFUSED:
                    raise
            os.unlink(path)
            listener.bind(path)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


class HttpServer:
    """Listens from the constructor on, and serves between `start` and `stop`.

    Args:
        place: host and port.
        option: of the command, which gives the place.

    Raises:
        CommandError: a library is missing, or it cannot listen there.
    """

    def __init__(self, place: Place, option: str) -> None:
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
        self._place = place
        self._socket = listen(place, option)
        self._server: Any = None
        self._thread: threading.Thread | None = None

    def start(
        self,
        shown: Any,
        control: Any = None,
        collector: Callable[[], Any] | None = None,
        closing: Callable[[], str] | None = None,
        **options: Any,
    ) -> None:
        """Serve the web interface of a streamer, worker or hub, and log its URL.

        Args:
            shown: what the pages show.
            control: as for `create_app`.
            collector: makes a collector of more metrics, which needs prometheus-client.
            closing: returns why nothing is ready any more; empty: that is not so.
            options: more of uvicorn's.
        """
        site = self._make_site(shown, control)
        if closing is not None:
            site.closing = closing
        if collector is not None:
            with contextlib.suppress(ImportError):  # then ``/metrics`` tells what is missing
                site.collected.add(collector())
        config = self._uvicorn.Config(
            self._make_app(site),
            log_config=None,  # so its log goes where the log of this process goes
            timeout_graceful_shutdown=1,
            **{"access_log": False, **options},
        )
        if (log := logging.getLogger("uvicorn.error")).level == logging.NOTSET:
            log.setLevel(logging.WARNING)
        self._server = self._uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run,
            args=([self._socket],),
            name="service-streamer-http",
            daemon=True,
        )
        self._thread.start()
        url = url_of(self._socket, tls="ssl_certfile" in options)
        say(f"the web interface is at {url}" + ("" if url.startswith(UNIX) else "/"))

    def stop(self) -> None:
        """Close it. Waits a short time for open connections."""
        if self._server is not None and self._thread is not None:
            # it would log a traceback for each open stream of events
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
            self._server.should_exit = True
            self._thread.join(_STOP)
        end_listening(self._socket, self._place)


@contextlib.contextmanager
def http_server(place: Place | None, option: str = "--http") -> Iterator[HttpServer | None]:
    """Return the server for an option, or None without that option. It stops at the end."""
    if place is None:
        yield None
        return
    server = HttpServer(place, option)
    try:
        yield server
    finally:
        server.stop()
