"""Calls of gRPC: bytes to messages, exceptions to status codes."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from .._errors import InvalidInput, failure
from . import messages

_LONGEST = 2000  # characters of an error; it travels in a header, whose size clients limit

Unary = Callable[[Any, Any], Awaitable[Any]]
Streaming = Callable[[AsyncIterator[Any], Any], Awaitable[None]]


def handlers(name: str, methods: Mapping[str, Any]) -> Any:
    """Return the handlers of a service.

    Args:
        name: of the service.
        methods: a function for each method. It gets the message, or an iterator of messages, and
            the context of the call. Its exceptions end the call with the code of `failure`.
    """
    found = {}
    for method in messages.service(name).methods:
        parse = functools.partial(_parse, messages.message(method.input_type.full_name))
        if method.client_streaming:
            run = functools.partial(_stream, parse, methods[method.name])
            found[method.name] = grpc.stream_stream_rpc_method_handler(run)
        else:
            run = functools.partial(_unary, parse, methods[method.name])
            found[method.name] = grpc.unary_unary_rpc_method_handler(run)
    return grpc.method_handlers_generic_handler(name, found)


def told(error: Exception) -> str:
    """Return the text of an error for a client."""
    text = failure(error).message.encode(errors="replace").decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


# The bytes are parsed here, for gRPC has no code for bytes that are no message.


async def _unary(parse: Callable[[bytes], Any], method: Unary, data: bytes, context: Any) -> bytes:
    try:
        response = await method(parse(data), context)
        return response.SerializeToString()  # type: ignore[no-any-return]
    except Exception as error:
        await _abort(context, error)


async def _stream(
    parse: Callable[[bytes], Any], method: Streaming, requests: AsyncIterator[bytes], context: Any
) -> None:
    try:
        await method((parse(data) async for data in requests), context)
    except Exception as error:
        await _abort(context, error)


def _parse(kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError:
        raise InvalidInput(f"the {len(data)} bytes are no {kind.DESCRIPTOR.full_name}") from None


async def _abort(context: Any, error: Exception) -> NoReturn:
    found = failure(error)
    trailing = ()
    if found.retry_after is not None:  # clients with a retry policy keep to it
        trailing = (("grpc-retry-pushback-ms", str(1000 * found.retry_after)),)
    await context.abort(grpc.StatusCode[found.code], told(error), trailing)
    raise AssertionError  # abort has raised
