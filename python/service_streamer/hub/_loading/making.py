"""Makes streamers, and measures the memory of their models."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable
from typing import Any

from ..._streamers.streamer import BaseStreamer
from ..._waiting.threads import original
from .. import _log, _memory
from .._models import Version
from .._sharing.streamer import SharedStreamer
from .._sharing.workers import SharedWorkers
from .._spec import ModelSpec


class Making:
    """Makes streamers. Any thread may call `make`, which blocks.

    Args:
        workers: that models share. None: there are none.
    """

    def __init__(self, workers: SharedWorkers | None) -> None:
        self._workers = workers
        self._growing = original("_thread", "allocate_lock")()

    def prepare(self, version: Version, note: Callable[[Any], None]) -> Callable[[], None]:
        """Make the environment of a version if it is missing, and return what releases it."""
        environment = version.spec.environment
        if environment is None:
            return _nothing
        return environment.prepare(note, functools.partial(_tell, version))

    def make(
        self,
        version: Version,
        note: Callable[[Any], None],
        on_death: Callable[[Version], None],
    ) -> BaseStreamer:
        """Return a streamer with a loaded model, and set the size of the version.

        Models in this process are measured by its growth, so they are loaded one at a time.

        Args:
            version: of the model.
            note: as for `ModelSpec.make_streamer`; also called with what makes an environment.
            on_death: called with the version if its shared worker dies while it runs. Must not
                block.
        """
        spec, make = version.spec, None
        apart = version.is_apart or version.settings  # a shared worker cannot be configured
        if self._workers is not None and spec.shared is not None and not apart:
            make = functools.partial(
                self._workers.open,
                spec.shared,
                spec.options,
                version.name,
                functools.partial(on_death, version),
            )
        release = self.prepare(version, note)
        try:
            with _alone(spec, self._growing):
                measured = _memory.begin()
                streamer = spec.make_streamer(note, make)
                size = measured(streamer)
        except BaseException:
            release()
            raise
        weakref.finalize(streamer, release)
        if isinstance(streamer, SharedStreamer):
            size = size._replace(host=streamer.memory)
        version.size = size if spec.in_processes else size.at_least(version.size)
        return streamer


def _tell(version: Version, text: str) -> None:
    version.progress = text
    _log.progress(version, text)


def _nothing() -> None:
    """Release nothing."""


def _alone(spec: ModelSpec, lock: Any) -> Any:
    return contextlib.nullcontext() if spec.in_processes else lock
