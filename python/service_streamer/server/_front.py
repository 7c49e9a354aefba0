"""HttpFront: brings requests of HTTP from granian to the application."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.log import LogLevels
from granian.rsgi import ProtocolClosed
from granian.server.embed import Server

from ._exchanges import Exchange, Exchanges
from ._http import Application
from ._messages import Refused, Request, Response, error_response

BACKLOG = 2048  # connections that wait, and requests at the same time
BODY_LIMIT = 64 << 20  # bytes

# Not the default, which closes the handlers of all loggers.
_LOGGING = {"incremental": True, "formatters": {}, "handlers": {}, "loggers": {}}


class HttpFront:
    """Listens for HTTP in the running event loop.

    Args:
        application: answers the requests.
        place: host and port. Port 0: any that is free.
        body_limit: most bytes of a body. A larger one is refused with status 413.

    Raises:
        OSError: it cannot listen there.
    """

    def __init__(
        self, application: Application, place: tuple[str, int], body_limit: int = BODY_LIMIT
    ) -> None:
        self._application = application
        self._body_limit = body_limit
        self._host, self._port = free_address(place)
        self._exchanges = Exchanges()
        self._server: Any = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    async def start(self) -> None:
        """Listen from now on."""
        self._server = Server(
            self._answer,
            address=self._host,
            port=self._port,
            interface=Interfaces.RSGI,
            http=HTTPModes.http1,
            websockets=False,
            backlog=BACKLOG,
            log_level=LogLevels.error,
            log_dictconfig=_LOGGING,
        )
        self._serving = asyncio.create_task(self._server.serve())
        while not await self._listens():
            if self._serving.done():
                await self._serving  # raises
                raise OSError(f"cannot listen at {self.url}")
            await asyncio.sleep(0.005)  # granian does not tell when it listens

    async def stop(self) -> None:
        """Refuse new connections, and wait until all requests are answered."""
        if self._server is not None and self._serving is not None:
            self._server.stop()
            await self._serving

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            return False
        writer.close()
        return True

    async def _answer(self, scope: Any, protocol: Any) -> None:
        exchange = self._exchanges.begin(protocol)
        try:
            method, header = scope.method, scope.headers.get
            try:
                body = b"" if method == "GET" else await self._body(header, exchange)
            except Refused as error:
                response = error_response(error)
            else:
                request = Request(method, scope.path, header, body)
                response = await self._application.answer(request)
            if type(response.body) is bytes:
                protocol.response_bytes(response.status, _headers(response), response.body)
            else:
                await _send_pieces(protocol, response)
        except asyncio.CancelledError:
            if exchange.why is None:
                raise
            # The client has gone, or does not send its body. Either way this ends the connection.
            protocol.response_empty(exchange.why, [("connection", "close")])
        except ProtocolClosed:
            pass
        finally:
            self._exchanges.end(exchange)

    async def _body(self, header: Any, exchange: Exchange) -> bytes:
        """Return the body.

        Raises:
            Refused: it is too large or compressed.
        """
        protocol = exchange.protocol
        if header("content-encoding") not in (None, "identity"):
            raise Refused(415, "the server takes no compressed bodies")
        length = header("content-length")
        exchange.reading = True
        if length is not None:
            if int(length) > self._body_limit:
                raise self._too_large()
            body: bytes = await protocol()
        else:
            chunks = []
            size = 0
            async for chunk in protocol:
                chunks.append(chunk)
                size += len(chunk)
                if size > self._body_limit:
                    raise self._too_large()
            body = b"".join(chunks)
        exchange.reading = False
        return body

    def _too_large(self) -> Refused:
        return Refused(
            413, f"the body has more than {self._body_limit} bytes", ("connection", "close")
        )


def _headers(response: Response) -> list[tuple[str, str]]:
    return [("content-type", response.content_type), *response.headers]


async def _send_pieces(protocol: Any, response: Response) -> None:
    transport = protocol.response_stream(response.status, _headers(response))
    pieces: Any = response.body
    try:
        async for piece in pieces:
            await transport.send_bytes(piece)
    finally:
        await pieces.aclose()


def free_address(place: tuple[str, int]) -> tuple[str, int]:
    """Return the IP address and the port of a place.

    Granian alone would share a port that is in use, and gRPC would not say why it cannot listen.

    Raises:
        OSError: nothing can listen there.
    """
    family, _, _, _, address = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)[0]
    with socket.create_server(address[:2], family=family) as probe:
        return str(address[0]), int(probe.getsockname()[1])
