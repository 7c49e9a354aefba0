"""ModelStreamInfer: many requests and responses in one call."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from .._errors import NotServing
from .._requests import usable_id
from .._service import Service
from . import messages
from .calls import parse, sending, tell
from .conversion import infer_request, infer_response, options_of

_IN_FLIGHT = 256  # requests of one call; then the client has to wait
_UNSENT = 64  # responses of one call; then its requests have to wait

_FINAL = "triton_final_response"

_Request = messages.message("inference.ModelInferRequest")
_Response = messages.message("inference.ModelStreamInferResponse")


class StreamCall:
    """One call. Its requests run side by side, and each response is sent as soon as it is there.

    The exception of a request is sent as an error with its id. The other requests go on.
    """

    def __init__(self, service: Service, context: Any) -> None:
        self._service = service
        self._context = context
        self._unsent: asyncio.Queue[Any] = asyncio.Queue(_UNSENT)  # None: there are no more
        self._room = asyncio.Semaphore(_IN_FLIGHT)
        self._answering: set[asyncio.Task[None]] = set()

    _reading: asyncio.Task[None]

    async def run(self, requests: AsyncIterator[bytes]) -> None:
        """Answer all requests. Cancels them if the client goes away."""
        self._reading = asyncio.create_task(self._read(requests))
        work = asyncio.create_task(self._answer_all(self._reading))
        try:
            # only here, for gRPC fails if one write is not complete when the next one begins
            while (response := await self._unsent.get()) is not None:
                with sending():
                    await self._context.write(response.SerializeToString())
            await work
        finally:
            for task in (self._reading, work, *self._answering):
                task.cancel()

    def stop(self) -> None:
        """Take no more requests. The call ends when those that were taken are answered."""
        self._reading.cancel()

    async def _read(self, requests: AsyncIterator[bytes]) -> None:
        async for data in requests:
            await self._room.acquire()
            task = asyncio.create_task(self._answer(data))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer_all(self, reading: asyncio.Task[None]) -> None:
        await asyncio.wait([reading])
        ends = await asyncio.gather(*self._answering, return_exceptions=True)
        await self._unsent.put(None)
        for error in filter(None, ends):
            raise error
        if reading.cancelled():
            raise NotServing("the server stops")
        await reading

    async def _answer(self, data: bytes) -> None:
        request = _Request()
        try:
            request = parse(_Request, data)
            await self._infer(request)
        except Exception as error:
            response = _response_to(request)
            response.error_message = tell(error, "ModelStreamInfer", usable_id(request.id)).message
            await self._unsent.put(response)
        finally:
            self._room.release()

    async def _infer(self, request: Any) -> None:
        options = options_of(request, self._context)
        responses = self._service.infer_stream(infer_request(request), options)
        has_end = request.parameters["triton_enable_empty_final_response"].bool_param
        async with contextlib.aclosing(responses):
            async for each in responses:
                response = _Response(infer_response=infer_response(each))
                if has_end:  # without the parameter it counts as the last one
                    response.infer_response.parameters[_FINAL].bool_param = False
                await self._unsent.put(response)
        if has_end:
            response = _response_to(request)
            response.infer_response.parameters[_FINAL].bool_param = True
            await self._unsent.put(response)


def _response_to(request: Any) -> Any:
    """Return a response without outputs."""
    response = _Response()
    response.infer_response.id = request.id
    response.infer_response.model_name = request.model_name
    return response
