"""ModelHub: many models in one process, loaded when they are needed."""

from __future__ import annotations

import os
import weakref
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from .._base import options as _options
from .._base.messages import see, wrong_option
from .._base.system import needs_linux
from .._base.types import Affinity, Numa
from .._engine.future import Future
from .._pipeline.request import Piece
from .._waiting import greenlets
from .._waiting.timeouts import countdown
from ._errors import ModelLoadError, UnknownModel
from ._handle import ModelHandle
from ._loading.limits import Limits
from ._loading.loader import Loader
from ._lobby import Lobby
from ._models import Model, Version
from ._names import Names, check_name
from ._sharing.workers import shared_workers
from ._spec import ModelSpec
from ._status import ModelStatus
from ._versions.plan import CanaryPlan

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._versions.folder import Found
    from ._versions.rollout import Rollout
    from ._versions.watching import Watching


class ModelHub:
    """Many models in one process. Each is loaded when it is needed, and unloaded to make room.

    ``hub["sentiment"]`` has the methods of a streamer. ``hub["sentiment@3"]`` is version 3 of the
    model, and ``hub["sentiment@stable"]`` the one with this label. A `ModelSpec` that is given here
    has version 1.

    If there is no room for a model, the hub unloads those that were not used for the longest time.
    No request fails then: a model that is unloaded first answers what it has accepted, and later
    requests wait until it is loaded again.

    A forked child can use the models that were loaded before, as it can use their streamers. It
    loads none.

    Args:
        models: by name, which consists of letters, digits, "_", "." and "-".
        max_loaded: most models that are loaded at the same time. None: no limit.
        memory_budget: most memory of all loaded models, as a number of bytes or as "12GB" or
            "512MiB". Sizes are measured. None: no limit.
        gpu_memory_budget: the same for the memory of all GPUs together. It is measured only if this
            process has initialised CUDA with torch.
        load_threads: most models that are loaded at the same time.
        workers: most worker processes for the models that may share one; see `ModelSpec`. None:
            each model that runs in worker processes has its own.
        affinity, numa, threads_per_worker: the CPUs of these ``workers``, as for `Streamer`.

    Raises:
        TypeError, ValueError: an argument is invalid. The message names it.

    Example:
        >>> models = {
        ...     "upper": ModelSpec(lambda texts: [text.upper() for text in texts], batch_size=64),
        ...     "sorted": ModelSpec(sorted, batch_size=32, pin=True),
        ... }
        >>> with ModelHub(models, memory_budget="12GB") as hub:
        ...     hub["upper"].predict(["hello"]), hub.predict("sorted", [1, 2])
        (['HELLO'], [1, 2])
    """

    def __init__(
        self,
        models: Mapping[str, ModelSpec],
        *,
        max_loaded: int | None = None,
        memory_budget: int | str | None = None,
        gpu_memory_budget: int | str | None = None,
        load_threads: int = 2,
        workers: int | None = None,
        affinity: Affinity | None = None,
        numa: Numa | None = None,
        threads_per_worker: int | None = None,
    ) -> None:
        needs_linux(type(self).__name__)
        limits = Limits(
            None if max_loaded is None else _options.count("max_loaded", max_loaded),
            _options.memory("memory_budget", memory_budget),
            _options.memory("gpu_memory_budget", gpu_memory_budget),
        )
        self._models: dict[str, Model] = {}
        self._names = Names(self._models)
        for name, spec in models.items():
            check_name(name)
            if not isinstance(spec, ModelSpec):
                raise wrong_option(f"model {name!r} must be a ModelSpec, not {spec!r}", TypeError)
            model = self._models[name] = Model(name, spec.pin)
            model.add(1, spec)
        self._handles: dict[str, ModelHandle] = {}
        threads = _options.count("load_threads", load_threads)
        placement = {"affinity": affinity, "numa": numa, "threads_per_worker": threads_per_worker}
        shared = shared_workers(workers, placement)
        self._loader = Loader(self._models, limits, threads, shared)
        self._rollout: Rollout | None = None
        self._watching: Watching | None = None
        self._was_ready = False
        self._lobby = Lobby(_weak_enter(self._loader))
        for model in self._models.values():
            for version in model.versions.values():
                if version.spec.load == "start":
                    self._loader.load(version)

    @classmethod
    def watch(cls, folder: str | os.PathLike[str], **options: Any) -> Self:
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
            ImportError: Python 3.10 has no tomli, which the extra ``hub`` installs.
            OSError: the folder cannot be read.
            TypeError, ValueError: an option is invalid.

        Example:
            >>> from pathlib import Path
            >>> Path("models").mkdir()  # of your own, with a folder for each model
            >>> with ModelHub.watch("models", memory_budget="12GB") as hub:
            ...     hub.status()
            {}
        """
        from ._versions.rollout import Rollout
        from ._versions.watching import Watching

        hub = cls({}, **options)
        hub._rollout = Rollout(hub._models, hub._loader)
        reference = weakref.ref(hub)

        def apply(found: Mapping[str, Found], changed: Collection[str]) -> float | None:
            if (hub := reference()) is None or hub._rollout is None:
                return None
            again = hub._rollout.apply(found, changed)
            hub._forget_handles()
            return again

        hub._watching = Watching(Path(folder), apply)
        hub._loader.after_failure = hub._watching.wake
        weakref.finalize(hub, hub._watching.stop).atexit = False
        hub._watching.wake()  # a load may have failed already
        return hub

    # ------------------------------------------------------------------- requests

    def get(self, name: str) -> ModelHandle:
        """Return a model with the methods of a streamer. Does not load it.

        Args:
            name: of the model, or ``"name@3"`` for a version, or ``"name@stable"`` for a label.

        Raises:
            UnknownModel: the hub has no such model, version or label.
        """
        handle = self._handles.get(name)
        if handle is None:
            alias = self._names.find(name)
            handle = self._handles[name] = ModelHandle(alias, self._loader, self._lobby)
        return handle

    __getitem__ = get

    def __contains__(self, name: object) -> bool:
        return name in self._models

    def predict(self, name: str, batch: Sequence[Any], **options: Any) -> Any:
        """Call `ModelHandle.predict` of a model."""
        return self.get(name).predict(batch, **options)

    def submit(self, name: str, batch: Sequence[Any], **options: Any) -> Future:
        """Call `ModelHandle.submit` of a model."""
        return self.get(name).submit(batch, **options)

    async def apredict(self, name: str, batch: Sequence[Any], **options: Any) -> Any:
        """Await `ModelHandle.apredict` of a model."""
        return await self.get(name).apredict(batch, **options)

    # ------------------------------------------------------------------- versions

    def publish(
        self,
        name: str,
        path: str | os.PathLike[str],
        version: int | None = None,
        timeout: float | None = None,
    ) -> int:
        """Copy a version to the folder of a model, and block until the hub has it.

        Returns:
            The number of the version.

        The version is tried first: a process of its own loads it as the hub does, with its warm-up,
        and compares its outputs with its file expected.json, if there is one. A version that fails
        is not published. No other process sees a part of the copy. The command ``publish`` does the
        same without a hub.

        Args:
            name: of a model in a folder that is watched.
            path: a folder, or a single file. Or a URL such as "s3://models/sentiment/5", which
                needs the extra ``remote``, and the package of its file system.
            version: the number, which must be new. None: the next one. The hub may still serve a
                version whose folder was removed; its number is not free.
            timeout: seconds to wait until it is loaded. None: no limit.

        Raises:
            UnknownModel: there is no such model.
            ValueError: the version exists already, or `path` is no version.
            OSError: it cannot be copied. Or the hub cannot read its folder afterwards.
            ModelLoadError: it cannot be loaded, or its outputs are not the expected ones.
            RequestTimeout: it was not loaded within `timeout` seconds.
        """
        from ._versions.publishing import publish  # only needed here

        limit = _options.timeout("timeout", timeout)
        if version is not None:
            _options.count("version", version, least=0)
        model, _ = self._watched(name)
        watching = self._watching
        assert watching is not None
        self._loader.check_open()
        number: int = greenlets.call(publish, watching.root, name, path, version, limit, model.held)
        greenlets.call(watching.look, watching.root / name / str(number))
        return number

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
        worse than that of the version that serves, it is taken out of service. The table
        ``[canary]`` of model.toml, the page and the command ``canary`` do the same.

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
            ModelLoadError: it cannot be loaded, or another canary or `end_canary` came before the
                end of the load. Nothing has changed.
            RequestTimeout: it is not loaded. Nothing has changed.
        """
        limit = _options.timeout("timeout", timeout)
        plan = CanaryPlan(version, share, margin, min_requests)
        model, rollout = self._watched(name)
        with self._loader.lock:
            earlier = model.trying
        try:
            tried = rollout.begin_canary(model, plan)
            greenlets.call(self._loader.wait, tried, limit)
            rollout.switch(tried)  # if the thread that has loaded it has not come so far
        finally:
            with self._loader.lock:
                if model.trying is plan:  # the one that model.toml asks for is still tried
                    model.trying = earlier if earlier is model.declared else None
            if self._watching is not None:
                self._watching.wake()
        if model.canary is None or model.canary.plan is not plan:
            raise ModelLoadError(f"the canary {tried.name} was ended or replaced meanwhile")

    def end_canary(self, name: str) -> None:
        """Take the canary of a model out of service, also one that is still being loaded.

        The version that serves goes on. A call of `canary` that waits raises `ModelLoadError`.

        Args:
            name: of a model in a folder that is watched.

        Raises:
            UnknownModel: there is no such model.
            ValueError: the model has no canary.
        """
        model, rollout = self._watched(name)
        if not rollout.cancel(model):
            raise ValueError(f"model {name!r} has no canary")

    def promote(self, name: str) -> int:
        """Let the canary of a model serve. Return its number.

        It serves, whatever the policy says, until the model.toml changes.

        Raises:
            ValueError: the model has no canary.
        """
        model, rollout = self._watched(name)
        return rollout.promote(model).number

    # ----------------------------------------------------------------- life cycle

    def load(self, name: str, timeout: float | None = None) -> None:
        """Load a model, and block until it is loaded. Also tries a failed model again at once.

        Arguments and errors are those of `ModelHandle.wait_ready`.
        """
        self.get(name).wait_ready(timeout)

    def unload(self, name: str) -> None:
        """Unload a model, and block until its requests have ended. The next request loads it.

        Without a version or label this unloads all versions of the model.
        """
        for version in self._names.versions(name):
            greenlets.call(self._loader.unload, version)

    def pin(self, name: str) -> None:
        """Keep a model loaded once it is loaded: it does not make room for others."""
        self._names.model(name).pinned = True

    def unpin(self, name: str) -> None:
        """Let a model make room for others again."""
        self._names.model(name).pinned = False

    def status(self) -> dict[str, ModelStatus]:
        """Return the state of all models, by name."""
        return {name: model.status() for name, model in list(self._models.items())}

    def close(self, drain: bool = True, timeout: float | None = None) -> None:
        """Reject new requests, then block until all requests have ended and all models are closed.

        Requests that wait for a model to be loaded end with `StreamerClosed`. May be called more
        than once. In a forked child it closes only what the child uses.

        Args:
            drain, timeout: as for `ThreadedStreamer.close`.
        """
        limit = _options.timeout("timeout", timeout)
        left = countdown(limit)
        if self._watching is not None and not self._loader.forked:
            self._watching.stop()
            greenlets.call(self._watching.join)
        greenlets.call(self._lobby.hand_over, drain, left())
        greenlets.call(self._loader.close, drain, left())
        self._lobby.close(drain, left())

    def __enter__(self) -> ModelHub:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *raised: object) -> None:
        self.close(drain=exc_type is None)

    def __reduce__(self) -> NoReturn:
        text = "a ModelHub cannot be pickled: create one in each process"
        raise TypeError(see(text, "a-streamer-that-is-pickled"))

    def __repr__(self) -> str:
        return f"<ModelHub {', '.join(self._models)}>"

    # -------------------------------------------------------------------- private

    def _versions(self) -> list[Version]:
        """Return all versions of all models."""
        return [
            each for model in list(self._models.values()) for each in list(model.versions.values())
        ]

    def _unready(self) -> str:
        """Return why the hub is not ready; empty: it is.

        It is ready when each model that is to be loaded at the start was loaded once. It stays
        ready: a model that comes or fails later must not keep requests from the others.
        """
        if self._was_ready:
            return ""
        for model in list(self._models.values()):
            version = None if model.serving is None else model.serving.version
            if version is not None and version.spec.load == "start" and not version.loads:
                return str(version.error or f"model {version.name} is being loaded")
        self._was_ready = True
        return ""

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


def _weak_enter(loader: Loader) -> Any:
    """Return `Loader.enter` without a reference to it, so that a forgotten hub can be deleted."""
    reference = weakref.WeakMethod(loader.enter)

    def enter(piece: Piece) -> None:
        if (found := reference()) is not None:
            found(piece)

    return enter
