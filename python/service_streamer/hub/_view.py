"""A hub as monitors and servers see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .._base.options import Options
from .._models.parameters import with_parameters
from ..extend import BaseStreamer
from ._handle import ModelHandle
from ._hub import ModelHub
from ._models import Model, State, Version
from ._names import Names
from ._status import ModelStatus, VersionView
from ._tracing import HubTracing, VersionTracer
from ._versions.plan import CanaryPlan

if TYPE_CHECKING:
    from ._loading.limits import Limits
    from ._loading.loader import Loader


class HubView:
    """A hub, or one of its models, as a monitor or a server sees it. `view_of` makes it.

    It keeps the hub alive. Any thread may call the methods. None of them blocks.

    Example:
        >>> with ModelHub({"sorted": ModelSpec(sorted, batch_size=64)}) as hub:
        ...     outputs = hub.predict("sorted", [1, 2])
        ...     versions = view_of(hub).versions()
        >>> [(each.model_name, each.number, each.serves) for each in versions]
        [('sorted', 1, True)]
    """

    STATES = tuple(each.value for each in State)
    """the states of a version"""

    def __init__(self, hub: ModelHub | ModelHandle) -> None:
        self._hub = hub
        self._loader = hub._loader
        self._names = Names(hub._loader.models)

    @property
    def is_closed(self) -> bool:
        """True: the hub is closed."""
        return self._loader.closed

    @property
    def is_forked(self) -> bool:
        """True: this process is a forked child, which loads nothing."""
        return self._loader.forked

    @property
    def limits(self) -> Limits:
        """The most models and the most memory of the hub."""
        return self._loader.budget.limits

    def check_open(self) -> None:
        """Raise StreamerClosed if the hub is closed."""
        self._loader.check_open()

    def obstacle(self) -> str:
        """Return why the hub is not ready; empty: it is. It stays ready.

        It is ready when each model that is to be loaded at the start was loaded once.
        """
        return self._hub._unready() if isinstance(self._hub, ModelHub) else ""

    def versions(self, name: str | None = None) -> list[VersionView]:
        """Return all versions.

        Args:
            name: return only those of a model, such as "name", or one, such as "name@3".

        Raises:
            UnknownModel: there is no such model, version or label.
        """
        return [*(self._versions() if name is None else self._names.versions(name))]

    def status(self, name: str) -> ModelStatus:
        """Return the state of one model. Takes a time that does not depend on the other models.

        Raises:
            UnknownModel: there is no such model.
        """
        return self._names.model(name).status()

    def check_canary(self, name: str, plan: Mapping[str, Any]) -> tuple[str, float]:
        """Return the name of a version and its share, if `ModelHub.canary` would begin with that.

        Args:
            name: of the model.
            plan: the other arguments.

        Raises:
            UnknownModel, TypeError, ValueError: it would not. The message says why.
        """
        assert isinstance(self._hub, ModelHub)
        model, rollout = self._hub._watched(name)
        checked = CanaryPlan.of(plan)
        rollout.check_canary(model, checked.version)
        return f"{name}@{checked.version}", checked.share

    def let_serve(self, name: str, version: int) -> None:
        """Let a version from the folder serve, whatever the policy says. Loads it if needed.

        Raises:
            UnknownModel: there is no such model.
        """
        assert isinstance(self._hub, ModelHub)
        model, rollout = self._hub._watched(name)
        rollout.let_serve(model, version)

    def options(self, model: ModelHandle) -> Options:
        """Return the options of the streamer of a model, or of its next one."""
        return model._options

    def with_parameters(self, items: list[Any], parameters: Mapping[str, Any]) -> list[Any]:
        """Return items that bring parameters to a model, whose spec says that it takes some.

        Args:
            items: of one request.
            parameters: str, int, float and bool objects by name.
        """
        return [*with_parameters(items, parameters)]

    def watch(
        self, callback: Callable[[VersionView, BaseStreamer], None]
    ) -> list[tuple[VersionView, BaseStreamer]]:
        """Call a function with each version that is loaded from now on, and its new streamer.

        The function is called before the first request of the streamer. It may block.

        Returns:
            The versions that are loaded now, and their streamers.
        """
        with self._loader.lock:
            self._loader.observers.append(callback)
            found = [(each, each.streamer) for each in self.versions()]
        return [(each, streamer) for each, streamer in found if streamer is not None]

    def start_tracing(self, make: Callable[[VersionView], VersionTracer]) -> bool:
        """Make spans of requests. Return False if the hub, or the model, has another tracer.

        Args:
            make: returns the tracer of a version. Must not block.
        """
        holder = self._holder()
        with self._loader.lock:
            if holder.tracing is not None:
                return False
            holder.tracing = HubTracing(make)
            for version in self._versions():
                if version.streamer is not None and (found := self._loader.tracing_of(version)):
                    found.watch(version.streamer)
        return True

    def stop_tracing(self, make: Callable[[VersionView], VersionTracer]) -> None:
        """Make no more spans, if `make` is that of `start_tracing`."""
        holder = self._holder()
        with self._loader.lock:
            tracing = holder.tracing
            if tracing is not None and tracing.make is make:
                holder.tracing = None
                tracing.forget()

    def _versions(self) -> list[Version]:
        if isinstance(self._hub, ModelHub):
            return self._hub._versions()
        return list(self._hub._alias.version.model.versions.copy().values())

    def _holder(self) -> Model | Loader:
        hub = self._hub
        return hub._loader if isinstance(hub, ModelHub) else hub._alias.version.model


def view_of(hub: ModelHub | ModelHandle) -> HubView:
    """Return a hub, or one of its models, as a monitor or a server sees it.

    Args:
        hub: a `ModelHub`; or a `ModelHandle`, whose view has all versions of its model.

    Raises:
        TypeError: it is neither.

    Example:
        >>> with ModelHub({"sorted": ModelSpec(sorted, batch_size=64)}) as hub:
        ...     view = view_of(hub)
        ...     view.is_closed, view.obstacle(), view.status("sorted").serving
        (False, '', 1)
    """
    if not isinstance(hub, ModelHub | ModelHandle):
        raise TypeError(f"expected a ModelHub or one of its models, not {hub!r}")
    return HubView(hub)
