"""GrpcFront: brings the calls of gRPC to the service."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import grpc

from .._access import Access
from .._counts import Counts
from .._service import Service
from . import messages
from .calls import Calls
from .health import Health
from .inference import Inference
from .reflection import Reflection

GRACE = 0.3  # s
PINGS = 5000  # ms between the pings of a client; many keep their connections with one each 10 s
CALLS = 1024  # of a connection at a time; others wait in the client
_FOREVER = 1e8  # s; gRPC has no other way to wait until all calls have ended


class GrpcFront:
    """Listens for gRPC in the running event loop.

    Args:
        service: what it serves.
        place: host and port. Port 0: any that is free. Or "unix:PATH" and 0.
        body_limit: most bytes of a message. A larger one is refused with RESOURCE_EXHAUSTED.
        access: decides which calls are allowed.
        credentials: of TLS, as gRPC has them. None: there is no TLS.
        access_log: write a line for each call.

    Raises:
        OSError: it cannot listen there.
    """

    def __init__(
        self,
        service: Service,
        place: tuple[str, int],
        body_limit: int,
        access: Access,
        credentials: Any = None,
        access_log: bool = False,
    ) -> None:
        address = _free_address(place)
        self._inference = Inference(service)
        counts = service.counts["grpc"] = Counts()
        self._left = asyncio.Event()
        """an event: the clients know that the server goes"""
        options = (
            ("grpc.max_receive_message_length", body_limit),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", CALLS),
            # gRPC ends connections with more pings than in 5 minutes, or 2 hours without calls
            ("grpc.http2.min_ping_interval_without_data_ms", PINGS),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.so_reuseport", 0),  # a second server at this port is an error
        )
        self._server: Any = grpc.aio.server(options=options)
        methods: dict[str, dict[str, Any]] = {
            messages.INFERENCE: self._inference.methods,
            messages.HEALTH: Health(service).methods,
        }
        self._reflection = Reflection([*methods, messages.REFLECTION])
        reflection = (messages.REFLECTION, messages.OLD_REFLECTION)
        if service.introspection:
            methods |= dict.fromkeys(reflection, self._reflection.methods)
        calls = Calls(counts, access, service.closing, self._left.wait, access_log)
        self._server.add_generic_rpc_handlers(
            [calls.handlers(name, each) for name, each in methods.items()]
        )
        try:
            if credentials is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:  # another process was faster
            raise OSError(str(error)) from None
        is_path = address.startswith("unix:")
        self.url = address if is_path else f"grpc://{address.rpartition(':')[0]}:{port}"
        """the address where it listens"""

    async def start(self) -> None:
        """Listen from now on."""
        await self._server.start()

    async def stop(self) -> None:
        """Refuse new calls, and wait until all requests are answered."""
        self._inference.stop()
        self._reflection.stop()
        # gRPC ends calls that are on their way with CANCELLED, which no client tries again. So they
        # are held, and get UNAVAILABLE when the client knows that it has to connect elsewhere.
        await asyncio.sleep(GRACE)
        ending = asyncio.ensure_future(self._server.stop(_FOREVER))
        await asyncio.sleep(0)  # it sends GOAWAY
        self._left.set()
        await ending


def _free_address(place: tuple[str, int]) -> str:
    """Return the address of a place for gRPC.

    Raises:
        OSError: nothing can listen there. gRPC would write the reason to stderr only.
    """
    if place[0].startswith("unix:"):
        return place[0]
    family, _, _, _, address = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)[0]
    with socket.create_server(address[:2], family=family) as probe:
        host, port = address[0], probe.getsockname()[1]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
