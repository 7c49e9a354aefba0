"""Chooses the kind of streamer that runs a model."""

from __future__ import annotations

from typing import Any

from .._models.model import is_managed
from .._processes.streamer import Streamer
from .._threads.threaded import ThreadedStreamer


def kind_for(target: Any, processes: bool = False) -> type[Streamer] | type[ThreadedStreamer]:
    """Return `Streamer` for a `ManagedModel` class, and for a function with `processes`.

    Everything else runs in a `ThreadedStreamer`: functions, native models, and `StepModel` objects.
    """
    return Streamer if processes or is_managed(target) else ThreadedStreamer
