"""SharedStreamer: a model of a hub that shares a worker process, with the methods of a streamer."""

from __future__ import annotations

from ..._base.options import Options
from ..._engine.backend import Backend
from ..._statistics.parts import Kind
from ..._streamers.streamer import BaseStreamer
from .backend import SharedBackend
from .memory import PackedModel
from .worker import SharedWorker


class SharedStreamer(BaseStreamer):
    """Runs a model in a worker process that has other models, too. `wait_ready` loads it.

    Args:
        worker: runs the model.
        packed: the model.
        options: of the model.
        name: of the model and its version.
    """

    _kind = Kind.SHARED

    def __init__(
        self, worker: SharedWorker, packed: PackedModel, options: Options, name: str
    ) -> None:
        self._worker = worker
        self._packed = packed
        self._model_name = name
        super().__init__(options, self._made(options, owns=True))

    @property
    def memory(self) -> int:
        """The bytes that the model takes in its worker."""
        shared: SharedBackend = self._backend  # type: ignore[assignment]
        return shared.memory or 0

    def refuse(self) -> None:
        """Let no worker load the model again: its requests end with `StreamerClosed` there.

        Called when a worker has died, so the next one does not have the model.
        """
        self._packed.close()

    def _made(self, options: Options, owns: bool) -> SharedBackend:
        size = options.batch_size
        return SharedBackend(self._worker, self._packed, self._model_name, size, owns)

    def _backend_in_child(self) -> Backend:
        return self._made(self._options, owns=False)

    def _name(self) -> str:
        return f"{type(self).__name__}({self._model_name})"
