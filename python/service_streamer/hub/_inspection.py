"""The methods of a handle about the streamer that has the model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .._errors import StreamerError
from .._statistics.stats import StreamerStats
from .._threaded import ThreadedStreamer
from .._types import Policy
from ._models import Alias
from ._status import VersionStatus

if TYPE_CHECKING:
    from .._options import Options
    from .._streamer import BaseStreamer
    from .._timeline import Recorder
    from ._spec import ModelSpec


class Inspection:
    """A base class of `ModelHandle`, which sets the attributes."""

    _alias: Alias
    _options: Options

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
