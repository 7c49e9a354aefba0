"""The reflection of gRPC: tells tools the services and their messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from .._errors import NotServing
from .._interrupt import Interrupt
from . import messages
from .calls import parse, sending

_Request = messages.message("grpc.reflection.v1.ServerReflectionRequest")
_Response = messages.message("grpc.reflection.v1.ServerReflectionResponse")


class Reflection:
    """Answers the requests of tools. It tells the protocols, which are public, and no models.

    Args:
        services: the names of all services.
    """

    def __init__(self, services: list[str]) -> None:
        self._services = services
        self._open: set[Interrupt] = set()
        self.methods = {"ServerReflectionInfo": self.info}

    def stop(self) -> None:
        """End all calls: a tool may leave one open for ever."""
        for each in self._open:
            each.send()

    async def info(self, requests: AsyncIterator[bytes], context: Any) -> None:
        """Answer the requests of one call."""
        stopped = Interrupt()
        self._open.add(stopped)
        try:
            async for data in requests:
                answer = self._answer(parse(_Request, data))
                with sending():
                    await context.write(answer.SerializeToString())
        except asyncio.CancelledError:
            if not stopped.takes_back():
                raise
            raise NotServing("the server stops") from None
        finally:
            self._open.discard(stopped)

    def _answer(self, request: Any) -> Any:
        response = _Response(valid_host=request.host, original_request=request)
        kind = request.WhichOneof("message_request")
        try:
            if kind == "list_services":
                for name in self._services:
                    response.list_services_response.service.add(name=name)
            elif kind == "file_by_filename":
                _add(response, messages.file(request.file_by_filename))
            elif kind == "file_containing_symbol":
                _add(response, messages.file_of(request.file_containing_symbol))
            else:
                raise KeyError("the messages have no extensions")
        except KeyError as error:
            response.error_response.error_code = grpc.StatusCode.NOT_FOUND.value[0]
            response.error_response.error_message = str(error.args[0])
        return response


def _add(response: Any, file: Any) -> None:
    response.file_descriptor_response.file_descriptor_proto.append(file.serialized_pb)
