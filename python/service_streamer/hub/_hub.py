"""ModelHub: many models in one process, loaded when they are needed."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn

from .._base import options as _options
from .._base.messages import see, wrong_option
from .._base.types import Affinity, Numa
from .._engine.future import Future
from .._pipeline.request import Piece
from .._waiting import greenlets
from .._waiting.timeouts import countdown
from ._handle import ModelHandle
from ._loading.loader import Loader
from ._loading.room import Limits
from ._lobby import Lobby
from ._memory import parse_bytes
from ._models import Model, Version
from ._names import Names, check_name
from ._sharing.workers import shared_workers
from ._spec import ModelSpec
from ._status import ModelStatus
from ._versions.releases import Releases


class ModelHub(Releases):
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
        limits = Limits(
            None if max_loaded is None else _options.count("max_loaded", max_loaded),
            parse_bytes("memory_budget", memory_budget),
            parse_bytes("gpu_memory_budget", gpu_memory_budget),
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
        self._was_ready = False
        self._lobby = Lobby(_weak_enter(self._loader))
        for model in self._models.values():
            for version in model.versions.values():
                if version.spec.load == "start":
                    self._loader.load(version)

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
            greenlets.call(self._watching.stop)
        greenlets.call(self._lobby.hand_over, drain, left())
        greenlets.call(self._loader.close, drain, left())
        self._lobby.close(drain, left())

    def __enter__(self) -> ModelHub:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(drain=exc_type is None)

    def __reduce__(self) -> NoReturn:
        text = "a ModelHub cannot be pickled: create one in each process"
        raise TypeError(see(text, "a-streamer-that-is-pickled"))

    def __repr__(self) -> str:
        return f"<ModelHub {', '.join(self._models)}>"


def _weak_enter(loader: Loader) -> Any:
    """Return `Loader.enter` without a reference to it, so that a forgotten hub can be deleted."""
    reference = weakref.WeakMethod(loader.enter)

    def enter(piece: Piece) -> None:
        if (found := reference()) is not None:
            found(piece)

    return enter
