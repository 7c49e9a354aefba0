"""Makes streamers, and measures the memory of their models."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from .._streamer import BaseStreamer
from .._waiting.threads import original
from . import _memory
from ._memory import Size
from ._spec import ModelSpec


class Making:
    """Makes streamers. Any thread may call `make`, which blocks."""

    def __init__(self) -> None:
        self._growing = original("_thread", "allocate_lock")()

    def make(
        self, spec: ModelSpec, note: Callable[[BaseStreamer], None]
    ) -> tuple[BaseStreamer, Size]:
        """Return a streamer with a loaded model, and the size of the model.

        Models in this process are measured by its growth, so they are loaded one at a time.

        Args:
            spec: of the model.
            note: as for `ModelSpec.make_streamer`.
        """
        with _alone(spec, self._growing):
            measured = _memory.begin()
            streamer = spec.make_streamer(note)
            return streamer, measured(streamer)


def _alone(spec: ModelSpec, lock: Any) -> Any:
    return contextlib.nullcontext() if spec.in_processes else lock
