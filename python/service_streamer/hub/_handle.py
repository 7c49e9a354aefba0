"""ModelHandle: a model of a hub, with the methods of a streamer."""

from __future__ import annotations

import functools
import os
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any

from .._base import options as _options
from .._base.errors import RequestTimeout, StreamerClosed, StreamerError
from .._base.types import Items, Policy
from .._engine.future import Future
from .._statistics.stats import StreamerStats
from .._streamers.requests import Requests
from .._threads.threaded import ThreadedStreamer
from .._waiting import greenlets
from .._waiting.timeouts import countdown
from ._errors import ModelLoadError
from ._loading.loader import Loader
from ._lobby import Lobby, LobbyRequest
from ._models import Alias, State
from ._sharing.streamer import SharedStreamer
from ._status import VersionStatus

if TYPE_CHECKING:
    from .._base.options import Options
    from .._streamers.streamer import BaseStreamer
    from .._streamers.timeline import Recorder
    from .._streams.inbox import Inbox
    from ._spec import ModelSpec
    from ._versions.canary import Canary


class ModelHandle(Requests):
    """One model of a `ModelHub`, with the methods of a streamer.

    A request of a loaded model goes straight to its streamer. Any other request waits until the
    model is loaded, within its timeout. It raises `ModelLoadError` if the model cannot be loaded.

    Example:
        >>> with ModelHub({"sorted": ModelSpec(sorted, batch_size=64)}) as hub:
        ...     handle = hub["sorted"]
        ...     handle.predict([1, 2], timeout=5), handle.stats().completed
        ([1, 2], 1)
    """

    def __init__(self, alias: Alias, loader: Loader, lobby: Lobby) -> None:
        self._alias = alias
        self._loader = loader
        self._lobby = lobby

    def predict(
        self,
        batch: Items[Any],
        *,
        timeout: float | None = None,
        priority: int = 0,
        tenant: str | None = None,
        caller_key: object = None,
    ) -> Any:
        """Send one request to the model and wait for its outputs.

        Arguments, result and errors are those of `ThreadedStreamer.predict`. The timeout includes
        the time in which the model is loaded. If that takes longer, the load goes on.

        Args:
            batch, timeout, priority, tenant: as there.
            caller_key: a str or an int. If the model has a canary, all requests with the same key
                go to the same version. None: a random choice.

        Raises:
            ModelLoadError: the model cannot be loaded.
        """
        canary: Canary | None = self._alias.canary
        if canary is not None:
            with canary.request(self._alias, caller_key) as alias:
                return self._predict(alias, batch, timeout, priority, tenant)
        return self._predict(self._alias, batch, timeout, priority, tenant)

    def submit(
        self,
        batch: Items[Any],
        *,
        timeout: float | None = None,
        priority: int = 0,
        tenant: str | None = None,
        caller_key: object = None,
    ) -> Future:
        """Send one request to the model and return its future at once.

        It does not wait for the model to be loaded. Arguments and errors are those of
        `ThreadedStreamer.submit` and `predict`. The future raises what `predict` raises.
        """
        canary: Canary | None = self._alias.canary
        if canary is not None:
            submit = functools.partial(
                self._submit, batch=batch, timeout=timeout, priority=priority, tenant=tenant
            )
            return canary.submitted(self._alias, caller_key, submit)  # type: ignore[no-any-return]
        return self._submit(self._alias, batch, timeout, priority, tenant)

    async def apredict(
        self,
        batch: Items[Any],
        *,
        timeout: float | None = None,
        priority: int = 0,
        tenant: str | None = None,
        caller_key: object = None,
    ) -> Any:
        """Do what `predict` does, for asyncio: the event loop keeps running meanwhile."""
        canary: Canary | None = self._alias.canary
        if canary is not None:
            with canary.request(self._alias, caller_key) as alias:
                return await self._apredict(alias, batch, timeout, priority, tenant)
        return await self._apredict(self._alias, batch, timeout, priority, tenant)

    def wait_ready(self, timeout: float | None = None) -> None:
        """Load the model if it is not loaded, and block until it is.

        Args:
            timeout: seconds to wait. None: no limit.

        Raises:
            RequestTimeout: the model was not loaded within `timeout` seconds. The load goes on.
            ModelLoadError: the model cannot be loaded.
            StreamerClosed: the hub is closed.
        """
        limit = _options.timeout("timeout", timeout)
        left = countdown(limit)
        while True:
            version = self._alias.version
            self._loader.load(version)
            try:
                return greenlets.call(self._loader.wait, version, left())  # type: ignore[no-any-return]
            except RequestTimeout:
                raise RequestTimeout(
                    f"model {version.name} was not loaded within {limit:g} s"
                ) from None
            except ModelLoadError:
                substitute = self._alias.version
                if substitute is version or substitute.state is State.FAILED:
                    raise

    def close(self, drain: bool = True, timeout: float | None = None) -> None:
        """Do nothing: the hub closes its models. `ModelHub.unload` closes one of them."""

    def __enter__(self) -> ModelHandle:
        return self

    def __exit__(self, *raised: object) -> None:
        """Do nothing, as `close`."""

    def __repr__(self) -> str:
        return f"<ModelHandle {self._alias.name!r}>"

    # ----------------------------------------------- the streamer that has the model

    def stats(self) -> StreamerStats:
        """Return the statistics of the streamer that has the model.

        If the model is not loaded, they are those of its last streamer.
        """
        version = self._alias.version
        if (streamer := version.streamer or version.leaving) is not None:
            return streamer.stats()
        return version.last_stats or _no_stats(self._options.batch_size)

    def explain(self) -> str:
        """Return the report of the streamer that has the model, or why there is none."""
        version = self._alias.version
        if (streamer := version.streamer) is not None:
            return streamer.explain()
        why = f": {version.error}" if version.error is not None else ""
        return f"{self!r} is {version.state.value}{why}"

    @property
    def spec(self) -> ModelSpec:
        """How the version that gets the requests now is loaded."""
        return self._alias.version.spec

    @property
    def version(self) -> int:
        """The number of the version that gets the requests now."""
        return self._alias.version.number

    @property
    def item_structure(self) -> str | None:
        """What an item of a native model is, as in `ModelSpec`; None: Python runs the model."""
        version = self._alias.version
        structure = version.spec.item_structure
        if structure is None and getattr(version.streamer, "is_native", False):  # by a factory
            return "native"
        return structure

    @property
    def is_native(self) -> bool:
        """True if C++ threads run the model."""
        return self.item_structure is not None

    def status(self) -> VersionStatus:
        """Return the state of the version that gets the requests now."""
        return self._alias.version.status()

    def record(
        self, path: str | os.PathLike[str], *, seconds: float = 60.0, max_events: int = 500_000
    ) -> Recorder:
        """Record the streamer that has the model, as `ThreadedStreamer.record` does.

        If the model is unloaded meanwhile, the file has what happened until then.

        Raises:
            StreamerError: the model is not loaded.
        """
        return self._loaded("record").record(path, seconds=seconds, max_events=max_events)

    def configure(
        self,
        *,
        policy: Policy | None = None,
        batch_size: int | None = None,
        max_latency: float | None = None,
        slo: float | None = None,
    ) -> None:
        """Change settings of the version that serves, as `ThreadedStreamer.configure` does.

        They hold for later loads of the version, too. A new version has its own options.

        Raises:
            StreamerError: the model is not loaded.
        """
        given = {
            "policy": policy,
            "batch_size": batch_size,
            "max_latency": max_latency,
            "slo": slo,
        }
        change: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        version = self._alias.version
        self._loaded("configure").configure(**change)
        version.settings = {**version.settings, **change}

    # -------------------------------------------------------------------- private

    @property
    def _options(self) -> Options:  # type: ignore[override]
        version = self._alias.version
        streamer = version.streamer
        return version.spec.options if streamer is None else streamer._options

    def _limit(self, timeout: float | None) -> float | None:
        return self._options.worker_timeout if timeout is None else timeout

    def _predict(
        self,
        alias: Alias,
        batch: Items[Any],
        timeout: float | None,
        priority: int,
        tenant: str | None,
    ) -> Any:
        version = alias.version
        if (streamer := version.streamer) is not None:
            version.check(batch)
            version.used = monotonic()
            try:
                return streamer.predict(batch, timeout=timeout, priority=priority, tenant=tenant)
            except StreamerClosed:
                if not self._loader.has_drained(streamer):
                    raise
        request = self._waiting(alias, batch, priority, tenant)
        return self._lobby.ask(request, self._limit(timeout))

    def _submit(
        self,
        alias: Alias,
        batch: Items[Any],
        timeout: float | None,
        priority: int,
        tenant: str | None,
    ) -> Future:
        version = alias.version
        streamer = version.streamer
        # A shared model may move. Only the lobby sends a submitted request again.
        if streamer is not None and not isinstance(streamer, SharedStreamer):
            version.check(batch)
            version.used = monotonic()
            try:
                return streamer.submit(batch, timeout=timeout, priority=priority, tenant=tenant)
            except StreamerClosed:
                if not self._loader.has_drained(streamer):
                    raise
        return self._lobby.send(self._waiting(alias, batch, priority, tenant), timeout)

    async def _apredict(
        self,
        alias: Alias,
        batch: Items[Any],
        timeout: float | None,
        priority: int,
        tenant: str | None,
    ) -> Any:
        version = alias.version
        if (streamer := version.streamer) is not None:
            version.check(batch)
            version.used = monotonic()
            try:
                return await streamer.apredict(
                    batch, timeout=timeout, priority=priority, tenant=tenant
                )
            except StreamerClosed:
                if not self._loader.has_drained(streamer):
                    raise
        request = self._waiting(alias, batch, priority, tenant)
        return await self._lobby.aask(request, self._limit(timeout))

    def _begin_stream(self, item: Any, priority: int, tenant: str | None, buffer: int) -> Inbox:
        version = self._alias.version
        if (remote := version.spec.in_processes) is None and version.streamer is None:
            asyncio = sys.modules.get("asyncio")
            if asyncio is not None and asyncio._get_running_loop() is not None:
                raise StreamerError(
                    f"model {version.name} is not loaded, and a factory makes its streamer: load "
                    "it with ModelHub.load before it streams to asyncio"
                )
            self.wait_ready(self._options.worker_timeout)
        streamer = version.streamer
        if streamer is not None and not isinstance(streamer, SharedStreamer):
            version.check([item])
            version.used = monotonic()
            try:
                return streamer._begin_stream(item, priority, tenant, buffer)
            except StreamerClosed:
                if not self._loader.has_drained(streamer):
                    raise
        tracing = self._loader.tracing_of(version)
        return self._lobby.begin_stream(
            self._alias, item, priority, tenant, buffer, bool(remote), tracing
        )

    def _waiting(
        self, alias: Alias, batch: Items[Any], priority: int, tenant: str | None
    ) -> LobbyRequest:
        tracing = self._loader.tracing_of(alias.version)
        return LobbyRequest(alias, batch, priority, tenant, tracing)

    def _loaded(self, method: str) -> BaseStreamer:
        version = self._alias.version
        if (streamer := version.streamer) is None:
            raise StreamerError(
                f"{method}: model {version.name} is {version.state.value}: load it with "
                "ModelHub.load first"
            )
        return streamer


def _no_stats(batch_size: int) -> StreamerStats:
    with ThreadedStreamer(list, batch_size) as streamer:  # it starts no thread
        return streamer.stats()
