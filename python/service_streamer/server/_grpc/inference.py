"""The methods of the Open Inference Protocol, and of Triton's model repository."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from ...hub import UnknownModel
from .._errors import InvalidInput
from .._parameters import check_load_parameters, check_unload_parameters
from .._service import Service
from .._tensors import shown
from . import messages
from .conversion import infer_request, infer_response, options_of
from .streaming import StreamCall


def _response(name: str) -> Any:
    return messages.message(f"inference.{name}Response")


_ServerLive = _response("ServerLive")
_ServerReady = _response("ServerReady")
_ServerMetadata = _response("ServerMetadata")
_ModelReady = _response("ModelReady")
_ModelMetadata = _response("ModelMetadata")
_ModelStatistics = _response("ModelStatistics")
_ModelConfig = _response("ModelConfig")
_RepositoryIndex = _response("RepositoryIndex")
_RepositoryModelLoad = _response("RepositoryModelLoad")
_RepositoryModelUnload = _response("RepositoryModelUnload")


_OF_HTTP = ("binary_tensor_data", "generate")


class Inference:
    """Answers the calls of `messages.INFERENCE`. A method gets the request and the context."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._streams: set[StreamCall] = set()
        self.methods: dict[str, Any] = {
            "ServerLive": self.server_live,
            "ServerReady": self.server_ready,
            "ServerMetadata": self.server_metadata,
            "ModelReady": self.model_ready,
            "ModelMetadata": self.model_metadata,
            "ModelInfer": self.model_infer,
            "ModelStreamInfer": self.model_stream_infer,
            "RepositoryIndex": self.repository_index,
            "RepositoryModelLoad": self.repository_model_load,
            "RepositoryModelUnload": self.repository_model_unload,
        }
        if service.introspection:
            self.methods["ModelStatistics"] = self.model_statistics
            self.methods["ModelConfig"] = self.model_config

    def stop(self) -> None:
        """Take no more requests from calls that stream."""
        for call in self._streams:
            call.stop()

    async def server_live(self, request: Any, context: Any) -> Any:
        """Tell that the process answers."""
        return _ServerLive(live=True)

    async def server_ready(self, request: Any, context: Any) -> Any:
        """Tell whether requests are answered."""
        return _ServerReady(ready=self._service.ready())

    async def server_metadata(self, request: Any, context: Any) -> Any:
        """Tell the name and the version of the server."""
        service = self._service
        extensions = [each for each in service.extensions if each not in _OF_HTTP]
        return _ServerMetadata(name=service.name, version=service.version, extensions=extensions)

    async def model_ready(self, request: Any, context: Any) -> Any:
        """Tell whether a model is loaded. One that is unknown is not ready, as in Triton."""
        try:
            ready = self._service.model_ready(request.name, request.version)
        except UnknownModel:
            ready = False
        return _ModelReady(ready=ready)

    async def model_metadata(self, request: Any, context: Any) -> Any:
        """Tell what is known of a model."""
        found = self._service.model_metadata(request.name, request.version)
        response = _ModelMetadata(name=found.name, versions=found.versions, platform=found.platform)
        for tensors, field in (
            (found.inputs, response.inputs),
            (found.outputs, response.outputs),
        ):
            for each in tensors:
                field.add(name=each.name, datatype=each.datatype, shape=each.shape)
        return response

    async def model_infer(self, request: Any, context: Any) -> Any:
        """Run one request."""
        options = options_of(request, context)
        response = await self._service.infer(infer_request(request), options)
        return infer_response(response)

    async def model_stream_infer(self, requests: AsyncIterator[bytes], context: Any) -> None:
        """Run the requests of a stream side by side."""
        call = StreamCall(self._service, context)
        self._streams.add(call)
        try:
            await call.run(requests)
        finally:
            self._streams.discard(call)

    async def model_statistics(self, request: Any, context: Any) -> Any:
        """Tell what has been counted of loaded models."""
        found = self._service.statistics(request.name, request.version)
        return _ModelStatistics(model_stats=found)

    async def model_config(self, request: Any, context: Any) -> Any:
        """Tell the configuration of a model."""
        found = self._service.configuration(request.name, request.version)
        return _ModelConfig(config=found)

    async def repository_index(self, request: Any, context: Any) -> Any:
        """List the models and their versions."""
        _check_repository(request)
        response = _RepositoryIndex()
        for each in self._service.index(request.ready):
            response.models.add(
                name=each.name, version=each.version, state=each.state, reason=each.reason
            )
        return response

    async def repository_model_load(self, request: Any, context: Any) -> Any:
        """Load a model, and answer when it is loaded."""
        _check_repository(request)
        check_load_parameters(request.parameters)
        await self._service.load(request.model_name, timeout=context.time_remaining())
        return _RepositoryModelLoad()

    async def repository_model_unload(self, request: Any, context: Any) -> Any:
        """Unload a model, and answer when its requests have ended."""
        _check_repository(request)
        check_unload_parameters(request.parameters)
        await self._service.unload(request.model_name)
        return _RepositoryModelUnload()


def _check_repository(request: Any) -> None:
    if request.repository_name:
        raise InvalidInput(
            f"there is one repository, without a name: {shown(request.repository_name)} is unknown"
        )
