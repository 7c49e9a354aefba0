"""The routes of the HTTP server."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import unquote

from .. import _log
from .._access import CONTROL, FREE, Access
from .._caller_trace import caller_trace, is_traced
from .._counts import UNKNOWN, Counts
from .._errors import NotAllowed
from .._requests import REQUEST_ID, usable_id
from .._service import Service
from .._tensors import shown
from .large_json import LargeJson
from .messages import Disconnected, Handler, Refused, Request, Response, error_response
from .openapi import OpenApi
from .tf_serving import TfServing
from .v2 import V2

_PATHS = 1024  # most paths whose handlers are kept
_ID = REQUEST_ID.encode()
_LONGEST = 256  # characters of such a path: those that clients make up may have 64 KiB


class Application:
    """Answers requests of HTTP. It knows no server, so a test needs no socket.

    Args:
        service: runs them.
        access: decides which are allowed.
    """

    def __init__(self, service: Service, access: Access) -> None:
        self._access = access
        large = LargeJson()
        self._v2 = V2(service, large)
        self._tf_serving = TfServing(service, large)
        self._openapi = OpenApi(service, access).openapi if service.introspection else None
        self._find = functools.lru_cache(_PATHS)(self._route)
        self.counts = service.counts["http"] = Counts()

    async def answer(
        self, request: Request, read: Callable[[], Awaitable[bytes | bytearray]] | None = None
    ) -> Response:
        """Return the response to a request.

        Args:
            request: the request.
            read: reads its body. None: the request has it.

        Raises:
            Disconnected: by `read`. There is no other exception but asyncio.CancelledError.
        """
        began = self.counts.begin()
        if (given := request.headers.get(_ID)) is not None:
            request.id = usable_id(given.decode("latin-1"))
        route, status = UNKNOWN, 499  # as nginx has it: the client has gone
        try:
            path = request.path
            route, handler = self._find(path) if len(path) <= _LONGEST else self._route(path)
            if route in CONTROL and _is_foreign(request):
                raise NotAllowed("a web page of another origin may not change the repository")
            self._access.check(route, _authorization(request), request.client)
            if read is not None and route not in FREE:
                request.body = await read()
            if is_traced():
                with caller_trace(_texts(request.headers)):
                    response = await handler(request)
            else:
                response = await handler(request)
            status = response.status
        except Disconnected:
            raise
        except Exception as error:
            response = error_response(error)
            status = response.status
            if status == 500:
                _log.failed(request.path, error, request.id)
        finally:
            self.counts.end(route, status, began)
        if request.id:
            response.headers += ((REQUEST_ID, request.id),)
        return response

    def _route(self, path: str) -> tuple[str, Handler]:
        """Return the name of a route, and what answers its requests.

        Raises:
            Refused: there is no such path.
        """
        found: Handler | None = None
        match [unquote(each) for each in path.split("/")]:
            case ["", "v1", "models", *rest] | ["", "models", *rest]:
                found = self._tf_serving.find(rest)
            case [""] | ["", ""]:
                found = self._tf_serving.live
            case ["", "openapi.json"]:
                found = self._openapi
            case ["", "v2", *rest]:
                found = self._v2.find(rest)
        if found is None:
            raise Refused(404, f"unknown path {shown(path)}")
        method = getattr(found, "func", found)  # of a partial
        return method.__name__.lstrip("_"), found


def _texts(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    return {name.decode("latin-1"): each.decode("latin-1") for name, each in headers.items()}


def _authorization(request: Request) -> str | None:
    found = request.headers.get(b"authorization")
    return None if found is None else found.decode("latin-1")


def _is_foreign(request: Request) -> bool:
    """Return True if a browser sends the request for a page of another origin."""
    origin = request.headers.get(b"origin")
    return origin is not None and origin.partition(b"://")[2] != request.headers.get(b"host")
