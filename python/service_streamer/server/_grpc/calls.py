"""Calls of gRPC: bytes to messages, exceptions to status codes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from .. import _log
from .._errors import Failure, InvalidInput, failure
from . import messages

_LONGEST = 500  # characters of an error; clients take 8 KB of headers, and one may need 12 bytes

Unary = Callable[[Any, Any], Awaitable[Any]]
Streaming = Callable[[AsyncIterator[bytes], Any], Awaitable[None]]


def handlers(name: str, methods: Mapping[str, Any]) -> Any:
    """Return the handlers of a service.

    Args:
        name: of the service.
        methods: a function for each method. It gets the message, or an iterator of the bytes of
            messages, and the context. Its exceptions end the call with the code of `failure`.
    """
    found = {}
    for method in messages.service(name).methods:
        call = methods[method.name]
        if method.client_streaming:
            found[method.name] = grpc.stream_stream_rpc_method_handler(
                functools.partial(_stream, method.name, call)
            )
        else:
            kind = messages.message(method.input_type.full_name)
            found[method.name] = grpc.unary_unary_rpc_method_handler(
                functools.partial(_unary, method.name, kind, call)
            )
    return grpc.method_handlers_generic_handler(name, found)


def tell(error: Exception, method: str) -> Failure:
    """Return what a client is told about an exception, in a form that gRPC can send."""
    found = failure(error)
    if found.status == 500:
        _log.failed(method, error)
    text = found.message.encode(errors="replace").decode()
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


async def _unary(name: str, kind: Any, method: Unary, data: bytes, context: Any) -> bytes:
    try:
        response = await method(parse(kind, data), context)
        return response.SerializeToString()  # type: ignore[no-any-return]
    except grpc.aio.AbortError:  # the method has ended the call itself
        raise
    except Exception as error:
        await _abort(context, tell(error, name))
        raise


async def _stream(
    name: str, method: Streaming, requests: AsyncIterator[bytes], context: Any
) -> None:
    try:
        await method(requests, context)
    except Exception as error:
        await _abort(context, tell(error, name))


async def _abort(context: Any, found: Failure) -> None:
    trailing: tuple[tuple[str, str], ...] = ()
    if found.retry_after is not None:  # clients with a retry policy keep to it
        trailing = (("grpc-retry-pushback-ms", str(1000 * found.retry_after)),)
    await context.abort(grpc.StatusCode[found.code], found.message, trailing)
