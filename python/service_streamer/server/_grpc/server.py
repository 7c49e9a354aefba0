"""GrpcServer: the gRPC front of a `Service`."""

from __future__ import annotations

from typing import Any

import grpc

from .._service import Service
from . import messages
from .calls import handlers
from .health import Health
from .inference import Inference


class GrpcServer:
    """Answers calls of gRPC in the event loop of its caller. No method may be called by another.

    Args:
        service: what it serves.
        place: host and port. Port 0 is any free port.
        max_message: most bytes of a message that it takes.
    """

    def __init__(self, service: Service, place: tuple[str, int], max_message: int) -> None:
        self._service = service
        self._place = place
        self._max_message = max_message
        self._server: Any = None

    async def start(self) -> None:
        """Listen, and answer calls from now on.

        Raises:
            OSError: it cannot listen there.
        """
        options = (
            ("grpc.max_receive_message_length", self._max_message),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),  # a second server at this port is an error
        )
        server = grpc.aio.server(options=options)
        host, port = self._place
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            self.port = server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"cannot listen at {address}: {error}") from None
        health, inference = Health(self._service), Inference(self._service)
        server.add_generic_rpc_handlers(
            (
                handlers(messages.INFERENCE, inference.methods),
                handlers(messages.HEALTH, health.methods),
            )
        )
        await server.start()
        self._server = server

    port: int
    """set by `start`"""

    async def stop(self, grace: float | None) -> None:
        """Refuse new calls, and wait until those in progress have ended.

        Args:
            grace: most seconds to wait; then they are cancelled. None: no wait.
        """
        if self._server is not None:
            await self._server.stop(grace)
