"""The routes of the HTTP server."""

from __future__ import annotations

import urllib.parse

from . import _log
from ._messages import Refused, Request, Response, error_response
from ._service import Service
from ._tf_serving import TfServing
from ._v2_http import V2


class Application:
    """Answers requests of HTTP. It knows no front, so a test needs no socket."""

    def __init__(self, service: Service) -> None:
        self._v2 = V2(service)
        self._tf_serving = TfServing(service)

    async def answer(self, request: Request) -> Response:
        """Return the response to a request. Raises nothing but asyncio.CancelledError."""
        try:
            return await self._route(request)
        except Exception as error:
            response = error_response(error)
            if response.status == 500:
                _log.failed(request.path, error)
            return response

    async def _route(self, request: Request) -> Response:
        path = request.path
        if "%" in path:
            path = urllib.parse.unquote(path)
        match path.split("/"):
            case ["", "v1", "models", *rest] | ["", "models", *rest]:
                return await self._tf_serving.answer(rest, request)
            case ["", "v2", *rest]:
                return await self._v2.answer(rest, request)
        raise Refused(404, f"unknown path {request.path}")
