"""Service: what HTTP and gRPC share. It has no word of either protocol."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from .. import __version__
from .._base import options as _options
from .._base.errors import RequestTimeout
from .._base.messages import text_of
from .._base.model_errors import OutputRefused
from ..hub import ModelHandle, ModelHub, ModelSpec, ModelStatus, UnknownModel, view_of
from ._blocking import Blocking
from ._counts import Counts
from ._errors import InvalidInput
from ._items import Items, Specs, items_of, items_of_instances, rank_of
from ._outputs import tensors_of, values_of
from ._parameters import check_copies, refuse
from ._requests import (
    DEFAULTS,
    NAME,
    CallOptions,
    IndexEntry,
    InferRequest,
    InferResponse,
    ModelMetadata,
    TensorMetadata,
)
from ._tensors import Tensor, shown
from ._triton import configuration_of, statistics_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from .._streams.stream import AsyncStream

INDEX_AGE = 1.0  # s; the state of many models takes long to collect

EXTENSIONS = (
    "binary_tensor_data",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "parameters",
    "generate",
)
INTROSPECTION = ("model_configuration", "statistics")
"""the extensions that `Service` can hide"""

# Other spellings, such as "01", would let clients fill the hub's table of handles.
_MODEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_VERSION = re.compile(r"0|[1-9][0-9]{0,17}|[A-Za-z_][\w.-]*", re.ASCII)
_PRIORITIES = range(-(2**31), 2**31)
_STATES = {"ready": "READY", "loading": "LOADING", "draining": "UNLOADING"}


class Service:
    """Runs the requests of clients on the models of a hub, in one asyncio event loop.

    All methods raise what `_errors.failure` knows: `InvalidInput`, `UnknownModel` and the errors of
    the hub and of the models.

    Args:
        hub: the models.
        introspection: tell statistics, configurations and what requests there are.
    """

    name = NAME
    version = __version__

    def __init__(self, hub: ModelHub, introspection: bool = True) -> None:
        self._hub = hub
        self.introspection = introspection
        self.extensions = [*EXTENSIONS, *(INTROSPECTION if introspection else ())]
        self._view = view_of(hub)
        self._names: set[str] = set()
        """the names that were found before"""
        self._index: tuple[float, list[IndexEntry]] | None = None
        """the index, and the time at which it was made"""
        self._statistics: tuple[float, list[dict[str, Any]]] | None = None
        """those of all models, the same"""
        self._stopping = False
        self._blocking = Blocking()
        self.counts: dict[str, Counts] = {}
        """the counts of requests by protocol; each front adds its own"""

    # ------------------------------------------------------------------- requests

    async def infer(self, request: InferRequest, options: CallOptions) -> InferResponse:
        """Run one request, whose tensors have a row for each item."""
        handle = self.handle(request.model, request.version)
        spec = handle.spec
        items = items_of(request.inputs, spec.inputs, handle.item_structure)
        if request.parameters:
            items = await self._with_parameters(handle, items, request.parameters, options)
        number = handle.version
        outputs = await self._run(handle, items, options)
        return _response(request, number, outputs, spec)

    async def infer_stream(
        self, request: InferRequest, options: CallOptions
    ) -> AsyncGenerator[InferResponse, None]:
        """Run one request, and yield its responses: one for each piece that the model streams.

        A model streams only to a request with one row. Other requests have one response.
        """
        handle = self.handle(request.model, request.version)
        spec = handle.spec
        items = items_of(request.inputs, spec.inputs, handle.item_structure)
        if len(items) > 1:
            yield await self.infer(request, options)
            return
        if request.parameters:
            items = await self._with_parameters(handle, items, request.parameters, options)
        number = handle.version
        async with await self._stream(handle, items[0], options) as pieces:
            async for piece in pieces:
                yield _response(request, number, [piece], spec)

    async def items(
        self,
        model: str,
        version: str,
        instances: list[Any],
        parameters: Mapping[str, Any],
        options: CallOptions,
    ) -> Items:
        """Return the items of a request with parameters, for `predict` or `stream`."""
        handle = self.handle(model, version)
        found = items_of_instances(instances, handle.spec.inputs, handle.item_structure)
        if parameters:
            found.items = await self._with_parameters(handle, found.items, parameters, options)
        return found

    def predict(
        self, model: str, version: str, instances: list[Any] | Items, options: CallOptions
    ) -> Awaitable[Any]:
        """Run a request whose items are values of JSON. Await one output per item."""
        handle = self.handle(model, version)
        found = items_of_instances(instances, handle.spec.inputs, handle.item_structure)
        outputs = self._run(handle, found.items, options)
        return _of_rank(outputs, found.rank) if found.rank else outputs

    async def stream(
        self, model: str, version: str, instances: list[Any] | Items, options: CallOptions
    ) -> AsyncStream:
        """Send one item, a value of JSON. Return an asynchronous iterator of its outputs."""
        handle = self.handle(model, version)
        found = items_of_instances(instances, handle.spec.inputs, handle.item_structure)
        (item,) = found.items
        return await self._stream(handle, item, options)

    # -------------------------------------------------------------- health and facts

    def ready(self) -> bool:
        """Return True if requests are answered: all models are loaded that load at the start."""
        return not self._stopping and not self._view.obstacle()

    def stop(self) -> None:
        """Be not ready from now on. Requests go on."""
        self._stopping = True

    def closing(self) -> str:
        """Return why nothing is ready any more; empty: that is not so."""
        return "the server stops" if self._stopping else ""

    def model_ready(self, model: str, version: str = "") -> bool:
        """Return True if a model is loaded. A request loads a model that is not."""
        return self.handle(model, version).status().state == "ready"

    def model_metadata(self, model: str, version: str = "") -> ModelMetadata:
        """Return what is known of a model, without loading it."""
        spec = self.handle(model, version).spec
        versions = [each.version for each in self.versions(model)]
        return ModelMetadata(model, versions, _told(spec.inputs), _told(spec.outputs))

    def specs(self) -> list[tuple[str, ModelSpec]]:
        """Return the models that can be asked, by name, and how the serving version is loaded."""
        names = sorted(each.model_name for each in self._view.versions() if each.serves)
        found = []
        for name in names:
            with contextlib.suppress(UnknownModel):  # it has vanished meanwhile
                found.append((name, self._hub.get(name).spec))
        return found

    def statistics(self, model: str = "", version: str = "") -> list[dict[str, Any]]:
        """Return the statistics of loaded versions in the form of Triton.

        Args:
            model: "": all models, as they were at most `INDEX_AGE` ago.
            version: "": all versions of the model.
        """
        if model or version:
            self.handle(model, version)  # checks the name
            return self._counted(f"{model}@{version}" if version else model)
        now = monotonic()
        if self._statistics is None or now - self._statistics[0] > INDEX_AGE:
            self._statistics = now, self._counted(None)
        return self._statistics[1]

    def configuration(self, model: str, version: str = "") -> dict[str, Any]:
        """Return the configuration of a model in the form of Triton, without loading it."""
        handle = self.handle(model, version)
        spec, is_loaded = handle.spec, handle.status().state == "ready"
        options = self._view.options(handle)
        return configuration_of(model, spec.inputs, spec.outputs, options, is_loaded)

    # ------------------------------------------------------------------ repository

    def index(self, only_ready: bool = False) -> list[IndexEntry]:
        """Return all versions of all models, as they were at most `INDEX_AGE` ago."""
        now = monotonic()
        if self._index is None or now - self._index[0] > INDEX_AGE:
            models = self._hub.status().values()
            self._index = now, [each for model in models for each in _entries(model)]
        return [each for each in self._index[1] if each.state == "READY" or not only_ready]

    def versions(self, model: str) -> list[IndexEntry]:
        """Return all versions of a model, in a time that does not depend on the other models."""
        self.handle(model)
        return [each for each in _entries(self._view.status(model)) if each.version]

    async def load(self, model: str, version: str = "", timeout: float | None = None) -> None:
        """Load a model, and wait until it is loaded."""
        _check_timeout(timeout)
        try:
            await self._load(self.handle(model, version), timeout)
        finally:
            self._index = None

    async def unload(self, model: str) -> None:
        """Unload all versions of a model, and wait until their requests have ended."""
        self.handle(model)
        try:
            await self._blocking.run(model, lambda: self._hub.unload(model))
        finally:
            self._index = None

    def handle(self, model: str, version: str = "") -> ModelHandle:
        """Return a model of the hub.

        Raises:
            UnknownModel: there is no such model, version or label.
        """
        name = f"{model}@{version}" if version else model
        if name not in self._names:
            if not _MODEL.fullmatch(model) or (version and not _VERSION.fullmatch(version)):
                raise UnknownModel(f"no model can have the name {shown(name)}")
            if model in self._hub and self._view.status(model).serving is None:
                # the reason has a path, which is not for clients
                raise UnknownModel(f"model {model!r} has no version that can be served")
            self._hub.get(name)
            self._names.add(name)
        return self._hub.get(name)

    # -------------------------------------------------------------------- private

    def _counted(self, name: str | None) -> list[dict[str, Any]]:
        found = map(statistics_of, self._view.versions(name))
        return [each for each in found if each is not None]

    def _run(self, handle: ModelHandle, items: list[Any], options: CallOptions) -> Awaitable[Any]:
        if options is DEFAULTS:
            outputs = handle.apredict(items)
        else:
            self._check(handle, options)
            outputs = handle.apredict(
                items,
                timeout=options.timeout,
                priority=options.priority,
                tenant=options.tenant,
                caller_key=options.caller_key,
            )
        return outputs if handle.spec.item_structure is None else _of_native(outputs)

    async def _with_parameters(
        self,
        handle: ModelHandle,
        items: list[Any],
        parameters: Mapping[str, Any],
        options: CallOptions,
    ) -> list[Any]:
        """Return the items of a request with parameters.

        Raises:
            InvalidInput: the model takes none, or they are too long for so many items.
        """
        check_copies(parameters, len(items))
        if handle.spec.takes_parameters is None:
            await self._load(handle, options.timeout)
        if not handle.spec.takes_parameters:
            raise refuse(parameters, "the request")
        return self._view.with_parameters(items, parameters)

    async def _stream(self, handle: ModelHandle, item: Any, options: CallOptions) -> AsyncStream:
        self._check(handle, options)
        if handle.spec.in_processes is None:  # its streamer is not known before it is loaded
            await self._load(handle, options.timeout)
        try:
            return handle.astream(
                item, timeout=options.timeout, priority=options.priority, tenant=options.tenant
            )
        except (TypeError, ValueError) as error:
            if handle.spec.item_structure is None:
                raise
            raise InvalidInput(text_of(error)) from error

    async def _load(self, handle: ModelHandle, timeout: float | None) -> None:
        is_loaded = handle.status().state == "ready"
        if not is_loaded and not await self._blocking.run(handle, handle.wait_ready, timeout):
            raise RequestTimeout(f"the model was not loaded within {timeout:g} s")

    def _check(self, handle: ModelHandle, options: CallOptions) -> None:
        if options.priority not in _PRIORITIES:
            raise InvalidInput(f"priority {options.priority} is out of range")
        _check_timeout(options.timeout)
        if options.tenant is not None:
            if len(options.tenant) > _options.LONGEST_TENANT:
                raise InvalidInput(f"a tenant has at most {_options.LONGEST_TENANT} characters")
            shares = self._view.options(handle).tenants
            if shares is not None and "*" not in shares and options.tenant not in shares:
                raise InvalidInput(f"the model has no share for the tenant {options.tenant!r}")


def _entries(model: ModelStatus) -> list[IndexEntry]:
    found = []
    for number, each in model.versions.items():
        state = _STATES.get(each.state, "UNAVAILABLE")
        reason = "" if state == "READY" else each.error or each.state
        found.append(IndexEntry(model.name, str(number), state, reason))
    return found or [IndexEntry(model.name, "", "UNAVAILABLE", model.error or "")]


async def _of_native(outputs: Awaitable[Any]) -> Any:
    """Await the outputs of a native model, which refuses an item before it runs."""
    try:
        return await outputs
    except OutputRefused:  # the fault of the model
        raise
    except (TypeError, ValueError) as error:
        raise InvalidInput(text_of(error)) from error


async def _of_rank(outputs: Awaitable[Any], rank: int) -> Any:
    return values_of(await outputs, rank)


def _check_timeout(timeout: float | None) -> None:
    if timeout is not None and not timeout >= 0:
        raise InvalidInput(f"the timeout must be at least 0 seconds, not {timeout}")


def _response(request: InferRequest, version: int, outputs: Any, spec: ModelSpec) -> InferResponse:
    tensors = tensors_of(outputs, spec.outputs, rank_of(request.inputs, spec.inputs))
    if request.outputs is None:
        wanted = list(tensors.values())
    else:
        wanted = [_output(tensors, name) for name in request.outputs]
    return InferResponse(request.model, str(version), request.id, wanted)


def _output(tensors: dict[str, Tensor], name: str) -> Tensor:
    if name not in tensors:
        raise InvalidInput(f"unknown output {name!r}; the outputs are {', '.join(tensors)}")
    return tensors[name]


def _told(specs: Specs) -> list[TensorMetadata]:
    return [
        TensorMetadata(
            name, "BYTES" if spec.datatype == "STRING" else spec.datatype, [-1, *spec.shape]
        )
        for name, spec in specs.items()
    ]
