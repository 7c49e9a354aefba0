"""The methods of `ModelHub` for models in a folder."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..._base import options as _options
from ..._base.messages import wrong_option
from ..._waiting import greenlets
from .._errors import ModelLoadError, UnknownModel
from .._handle import ModelHandle
from .._loading.loader import Loader
from .._models import Model
from .._names import Names
from .canary import Canary

if TYPE_CHECKING:
    from .folder import Found
    from .rollout import Rollout
    from .watching import Watching

_Self = TypeVar("_Self", bound="Releases")


class Releases:
    """The part of `ModelHub` that watches a folder. `ModelHub` sets the attributes."""

    _models: dict[str, Model]
    _names: Names
    _handles: dict[str, ModelHandle]
    _loader: Loader
    _rollout: Rollout | None = None
    _watching: Watching | None = None

    @classmethod
    def watch(cls: type[_Self], folder: str | os.PathLike[str], **options: Any) -> _Self:
        """Return a hub of the models in a folder. It notices new models and versions.

        .. code-block:: text

            models/
                sentiment/
                    model.toml
                    3/
                    4/

        A new version is loaded and warmed up beside the one that serves, and takes over when it is
        ready. Then the old one is drained and unloaded. No request fails. A version that cannot be
        loaded never takes over; `status` and the log say why.

        Args:
            folder: of the models.
            **options: those of `ModelHub`, except ``models``.

        Raises:
            ImportError: the extra ``hub`` is not installed.
            OSError: the folder cannot be read.
            TypeError, ValueError: an option is invalid.

        Example:
            >>> from pathlib import Path
            >>> Path("models").mkdir()  # of your own, with a folder for each model
            >>> with ModelHub.watch("models", memory_budget="12GB") as hub:
            ...     hub.status()
            {}
        """
        from .rollout import Rollout
        from .watching import Watching  # needs the extra

        hub = cls({}, **options)  # type: ignore[call-arg]
        hub._rollout = Rollout(hub._models, hub._loader)
        reference = weakref.ref(hub)

        def apply(found: dict[str, Found]) -> bool:
            if (hub := reference()) is None or hub._rollout is None:
                return False
            hub._rollout.apply(found)
            hub._forget_handles()
            return True

        hub._watching = Watching(Path(folder), apply)
        return hub

    def rollback(self, name: str, timeout: float | None = None) -> int:
        """Go back to the version that served before, and block until it serves. Return its number.

        The version that served until now, and other newer ones, do not come back; a version that is
        newer than these takes over as usual.

        Args:
            name: of a model in a folder that is watched.
            timeout: seconds to wait. None: no limit.

        If the model has a canary, it is taken out of service instead, and nothing else changes.

        Raises:
            UnknownModel: there is no earlier version, or its folder is gone.
            ValueError: the policy pins a version.
            ModelLoadError: the earlier version cannot be loaded. The present one goes on.
            RequestTimeout: it was not loaded within `timeout` seconds. The load goes on.
        """
        limit = _options.timeout("timeout", timeout)
        model, rollout = self._watched(name)
        if rollout.retract(model) and model.serving is not None:
            return model.serving.version.number
        version = rollout.reject(model)
        greenlets.call(self._loader.wait, version, limit)
        rollout.switch(version)
        return version.number

    def canary(
        self,
        name: str,
        *,
        version: int,
        share: float,
        margin: float = 0.05,
        min_requests: int = 100,
        timeout: float | None = None,
    ) -> None:
        """Load a version from the folder, then give it a share of the requests of the model.

        The share is of the callers, if requests have a ``caller_key``; the callers of a share are
        also in a larger one. Streams do not go to a canary. If the error rate of the canary is
        worse than that of the version that serves, it is taken out of service.

        Args:
            name: of a model in a folder that is watched.
            version: the number. The policy of the model must not let it serve already.
            share: from 0 to 1.
            margin: most that the error rate may be higher, from 0 to 1.
            min_requests: requests that the canary answers before its error rate counts.
            timeout: seconds to wait until it is loaded. None: no limit.

        Raises:
            UnknownModel: there is no such model, or no such version in its folder.
            ValueError: an argument is invalid, or the version serves already.
            ModelLoadError, RequestTimeout: it is not loaded. Nothing has changed.
        """
        limit = _options.timeout("timeout", timeout)
        for option, value in (("share", share), ("margin", margin)):
            if not 0 <= value <= 1:
                raise wrong_option(f"{option} must be from 0 to 1, not {value!r}")
        count = _options.count("min_requests", min_requests)
        model, rollout = self._watched(name)
        tried = rollout.add(model, version)
        try:
            self._loader.load(tried)
            greenlets.call(self._loader.wait, tried, limit)
            rollout.begin(Canary(tried, share, margin, count, rollout.end))
        finally:
            model.trying = None

    def promote(self, name: str) -> int:
        """Let the canary of a model serve. Return its number.

        It serves, whatever the policy says, until the model.toml changes.

        Raises:
            ValueError: the model has no canary.
        """
        model, rollout = self._watched(name)
        return rollout.promote(model).number

    # -------------------------------------------------------------------- private

    def _watched(self, name: str) -> tuple[Model, Rollout]:
        model = self._names.model(name)
        if self._loader.forked:
            raise ModelLoadError("a forked process loads no models")
        if self._rollout is None:
            raise UnknownModel(f"model {name!r} is in no folder: it has one version")
        return model, self._rollout

    def _forget_handles(self) -> None:
        """Forget the handles of versions and labels that are gone, or that have changed."""
        for name, handle in list(self._handles.items()):
            try:
                same = self._names.find(name).version is handle._alias.version
            except UnknownModel:
                same = False
            if not same:
                self._handles.pop(name, None)
