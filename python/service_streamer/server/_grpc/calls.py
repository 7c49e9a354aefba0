"""Calls of gRPC: bytes to messages, exceptions to status codes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, NoReturn
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError

from .. import _log
from .._access import CONTROL, FREE, Access
from .._access_log import Entry
from .._caller_trace import caller_trace, is_traced
from .._counts import Counts
from .._errors import Failure, InvalidInput, NotServing, failure
from .._requests import REQUEST_ID, usable_id
from . import messages

_LONGEST = 500  # characters of an error; clients take 8 KB of headers, and one may need 12 bytes

Unary = Callable[[Any, Any], Awaitable[Any]]
Streaming = Callable[[AsyncIterator[bytes], Any], Awaitable[None]]


class Calls:
    """Takes the calls of a server, counts them and ends them.

    Args:
        counts: counts the calls.
        access: decides which are allowed.
        closing: returns why no call is taken any more; empty: calls are taken.
        left: returns when such a call may be refused.
        access_log: write a line for each.
    """

    def __init__(
        self,
        counts: Counts,
        access: Access,
        closing: Callable[[], str],
        left: Callable[[], Awaitable[object]],
        access_log: bool = False,
    ) -> None:
        self._counts = counts
        self._access = access
        self._closing = closing
        self._left = left
        self._access_log = access_log

    def handlers(self, name: str, methods: Mapping[str, Any]) -> Any:
        """Return the handlers of a service.

        Args:
            name: of the service.
            methods: a function for each method; others do not exist. It gets the message, or an
                iterator of the bytes of messages, and the context. Its exceptions end the call with
                the code of `failure`.
        """
        found = {}
        for method in messages.service(name).methods:
            function = methods.get(method.name)
            if function is None:
                continue
            path = f"/{name}/{method.name}"
            if method.client_streaming:
                found[method.name] = grpc.stream_stream_rpc_method_handler(
                    functools.partial(self._stream, path, function)
                )
            else:
                kind = messages.message(method.input_type.full_name)
                found[method.name] = grpc.unary_unary_rpc_method_handler(
                    functools.partial(self._unary, path, kind, function)
                )
        return grpc.method_handlers_generic_handler(name, found)

    async def _unary(
        self, path: str, kind: Any, function: Unary, data: bytes, context: Any
    ) -> bytes:
        async with self._counted(path, context) as entry:
            request = parse(kind, data)
            if not entry.request_id and (found := usable_id(getattr(request, "id", ""))):
                entry.request_id = found
                context.set_trailing_metadata(_trailing(entry))
            response = await function(request, context)
            return response.SerializeToString()  # type: ignore[no-any-return]

    async def _stream(
        self, path: str, function: Streaming, requests: AsyncIterator[bytes], context: Any
    ) -> None:
        async with self._counted(path, context):
            await function(requests, context)

    @contextlib.asynccontextmanager
    async def _counted(self, path: str, context: Any) -> AsyncIterator[Entry]:
        """Count a call if it is allowed, and end it with the code of its exception."""
        name = path.rpartition("/")[2]
        given = dict(context.invocation_metadata())
        client = context.peer().rpartition(":")[0]  # without the port
        entry = Entry(client, "POST", path, "2")
        entry.request_id = usable_id(str(given.get(REQUEST_ID, "")))
        if entry.request_id:
            context.set_trailing_metadata(_trailing(entry))
        began, entry.code = self._counts.begin(), "CANCELLED"
        try:
            if (why := self._closing()) and name not in FREE:
                await self._left()
                raise NotServing(why)
            if self._access.needs_tokens or name in CONTROL:
                self._access.check(name, given.get("authorization"), client)
            with caller_trace(given) if is_traced() else contextlib.nullcontext():
                yield entry
            entry.status, entry.code = 200, "OK"
        except Exception as error:
            found = tell(error, name, entry.request_id)
            entry.status, entry.code = found.status, found.code
            await _abort(context, found, _trailing(entry))
        finally:
            self._counts.end(name, entry.code, began)
            if self._access_log:
                entry.client = unquote(client.partition(":")[2]).strip("[]")
                entry.user_agent = str(given.get("user-agent", ""))
                entry.write()


def tell(error: Exception, method: str, request_id: str = "") -> Failure:
    """Return what a client is told about an exception, in a form that gRPC can send."""
    found = failure(error)
    if found.status == 500:
        _log.failed(method, error, request_id)
    text = found.message
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}..."
    return dataclasses.replace(found, message=text)


def parse(kind: Any, data: bytes) -> Any:
    """Return the message in some bytes. gRPC would answer bytes that are none with INTERNAL.

    Raises:
        InvalidInput: they are no message of this kind.
    """
    try:
        return kind.FromString(data)
    except DecodeError:
        raise InvalidInput(f"the {len(data)} bytes are no {kind.DESCRIPTOR.full_name}") from None


@contextlib.contextmanager
def sending() -> Iterator[None]:
    """End a call as cancelled if gRPC cannot send: the client has gone.

    Clients leave at their deadline, when their requests end too. gRPC would log the error with its
    traceback if it has not seen yet that the client has gone.
    """
    try:
        yield
    except grpc.aio.InternalError:
        raise asyncio.CancelledError from None


def _trailing(entry: Entry) -> tuple[tuple[str, str], ...]:
    return ((REQUEST_ID, entry.request_id),) if entry.request_id else ()


async def _abort(context: Any, found: Failure, trailing: tuple[tuple[str, str], ...]) -> NoReturn:
    if found.retry_after is not None:  # clients with a retry policy keep to it
        trailing += (("grpc-retry-pushback-ms", str(1000 * found.retry_after)),)
    with sending():
        await context.abort(grpc.StatusCode[found.code], found.message, trailing)
    raise AssertionError("abort raises")
