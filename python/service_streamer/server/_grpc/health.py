"""The health service of gRPC, for probes."""

from __future__ import annotations

from typing import Any

from .._errors import UnknownService
from .._service import Service
from .._tensors import shown
from . import messages

_Response = messages.message("grpc.health.v1.HealthCheckResponse")

LIVE = "live"
"""the name that is healthy as long as the process answers; all others ask for readiness"""


class Health:
    """Answers health checks: the server is SERVING once it takes requests."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.methods = {"Check": self.check}

    async def check(self, request: Any, context: Any) -> Any:
        """Tell whether the server is live or ready."""
        if request.service == LIVE:
            serving = True
        elif request.service in ("", messages.INFERENCE):
            serving = self._service.ready()
        else:
            raise UnknownService(
                f"unknown service {shown(request.service)}; known are {messages.INFERENCE!r}, "
                f"{LIVE!r} and the empty name"
            )
        return _Response(status=_Response.SERVING if serving else _Response.NOT_SERVING)
