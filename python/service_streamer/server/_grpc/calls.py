"""Calls of gRPC: bytes to messages, exceptions to status codes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from .. import _log
from .._access import CONTROL, FREE, Access
from .._counts import Counts
from .._errors import Failure, InvalidInput, NotServing, failure
from . import messages

_LONGEST = 500  # characters of an error; clients take 8 KB of headers, and one may need 12 bytes

Unary = Callable[[Any, Any], Awaitable[Any]]
Streaming = Callable[[AsyncIterator[bytes], Any], Awaitable[None]]


def handlers(
    name: str,
    methods: Mapping[str, Any],
    counts: Counts,
    access: Access,
    closing: Callable[[], str],
    left: Callable[[], Awaitable[object]],
) -> Any:
    """Return the handlers of a service.

    Args:
        name: of the service.
        methods: a function for each method. It gets the message, or an iterator of the bytes of
            messages, and the context. Its exceptions end the call with the code of `failure`.
        counts: counts the calls.
        access: decides which are allowed.
        closing: returns why no call is taken any more; empty: calls are taken.
        left: returns when such a call may be refused.
    """
    found = {}
    counted = functools.partial(_counted, counts, access, closing, left)
    for method in messages.service(name).methods:
        call = methods[method.name]
        if method.client_streaming:
            found[method.name] = grpc.stream_stream_rpc_method_handler(
                functools.partial(_stream, method.name, counted, call)
            )
        else:
            kind = messages.message(method.input_type.full_name)
            found[method.name] = grpc.unary_unary_rpc_method_handler(
                functools.partial(_unary, method.name, counted, kind, call)
            )
    return grpc.method_handlers_generic_handler(name, found)


def tell(error: Exception, method: str) -> Failure:
    """Return what a client is told about an exception, in a form that gRPC can send."""
    found = failure(error)
    if found.status == 500:
        _log.failed(method, error)
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


async def _unary(
    name: str, counted: Any, kind: Any, method: Unary, data: bytes, context: Any
) -> bytes:
    async with counted(name, context):
        response = await method(parse(kind, data), context)
        return response.SerializeToString()  # type: ignore[no-any-return]


async def _stream(
    name: str, counted: Any, method: Streaming, requests: AsyncIterator[bytes], context: Any
) -> None:
    async with counted(name, context):
        await method(requests, context)


@contextlib.asynccontextmanager
async def _counted(
    counts: Counts,
    access: Access,
    closing: Callable[[], str],
    left: Callable[[], Awaitable[object]],
    name: str,
    context: Any,
) -> AsyncIterator[None]:
    """Count a call if it is allowed, and end it with the code of its exception."""
    began, code = counts.begin(), "CANCELLED"
    try:
        if (why := closing()) and name not in FREE:
            await left()
            raise NotServing(why)
        if access.needs_tokens or name in CONTROL:
            client = context.peer().rpartition(":")[0]  # without the port
            access.check(name, _authorization(context), client)
        yield
        code = "OK"
    except Exception as error:
        found = tell(error, name)
        code = found.code
        await _abort(context, found)
    finally:
        counts.end(name, code, began)


def _authorization(context: Any) -> str | None:
    for name, value in context.invocation_metadata():
        if name == "authorization":
            return str(value)
    return None


async def _abort(context: Any, found: Failure) -> NoReturn:
    trailing: tuple[tuple[str, str], ...] = ()
    if found.retry_after is not None:  # clients with a retry policy keep to it
        trailing = (("grpc-retry-pushback-ms", str(1000 * found.retry_after)),)
    with sending():
        await context.abort(grpc.StatusCode[found.code], found.message, trailing)
    raise AssertionError("abort raises")
