"""Combines the requests of a web application into batches for a deep-learning model.

Create a streamer from the model's predict function. Then call ``streamer.predict(batch)`` in place
of ``model.predict(batch)``:

    >>> from service_streamer import ThreadedStreamer
    >>> def predict(texts):  # your model: a list of items in, one output per item out
    ...     return [text.upper() for text in texts]
    >>> streamer = ThreadedStreamer(predict, batch_size=64)
    >>> streamer.predict(["one item", "another"])
    ['ONE ITEM', 'ANOTHER']

A `ThreadedStreamer` runs the model in a thread of this process. A `Streamer` runs it in worker
processes, which all processes of a web server can share. A `RedisStreamer` sends the requests to
`RedisWorker` processes on any machine. A `RayStreamer` runs it in actors of a Ray cluster. All have
the same methods.
"""

from __future__ import annotations

import typing

from ._base import install_check as _install_check  # noqa: F401  (raises)

# isort: split
from . import _from_core  # noqa: F401  (the core needs it)
from ._base import option_names as _option_names
from ._base.errors import (
    AlreadyRecording,
    BrokerError,
    CancelledError,
    ClusterError,
    OutputSizeMismatch,
    QueueFull,
    RequestTimeout,
    SerializationError,
    StreamerClosed,
    StreamerError,
    WorkerInitError,
    WorkerLost,
)
from ._base.options import Cache
from ._core import __version__
from ._engine.future import Future
from ._models.step_model import StepModel
from ._processes.streamer import Streamer
from ._ray.streamer import RayStreamer
from ._redis.forever import run_redis_workers_forever
from ._redis.streamer import RedisStreamer
from ._redis.worker import RedisWorker
from ._statistics.parts import ConsumerStats, StepStats, StreamStats, TenantStats, WorkerStats
from ._statistics.stats import RecentStats, StreamerStats
from ._statistics.time_summary import TimeSummary
from ._threads.batched import batched
from ._threads.threaded import ThreadedStreamer
from .managed_model import ManagedModel

__all__ = [
    "AlreadyRecording",
    "AsyncStream",
    "BrokerError",
    "Cache",
    "CancelledError",
    "ClusterError",
    "ConsumerStats",
    "Future",
    "ManagedModel",
    "OutputSizeMismatch",
    "Pipeline",
    "QueueFull",
    "RayStreamer",
    "RecentStats",
    "Recorder",
    "RedisStreamer",
    "RedisWorker",
    "RequestTimeout",
    "SerializationError",
    "Stage",
    "StepModel",
    "StepStats",
    "Stream",
    "StreamStats",
    "Streamer",
    "StreamerClosed",
    "StreamerError",
    "StreamerStats",
    "TenantStats",
    "ThreadedStreamer",
    "TimeSummary",
    "WorkerInitError",
    "WorkerLost",
    "WorkerStats",
    "__version__",
    "batched",
    "run_redis_workers_forever",
]

# help() and tracebacks show the public import path, not the private module
for _name in __all__:
    _member = globals().get(_name)
    if isinstance(_member, type) and _member.__module__.startswith(f"{__name__}."):
        _member.__module__ = __name__
del _name, _member

if typing.TYPE_CHECKING:
    from ._pipeline.pipeline import Pipeline
    from ._pipeline.stage import Stage
    from ._streamers.timeline import Recorder
    from ._streams.stream import AsyncStream, Stream


def __getattr__(name: str) -> typing.Any:
    """Import what few programs need when it is first used."""
    if name in ("AsyncStream", "Stream"):
        from ._streams import stream

        found = vars(stream)
    elif name in ("Pipeline", "Stage"):
        from ._pipeline import pipeline

        found = vars(pipeline)
    elif name == "Recorder":
        from ._streamers import timeline

        found = vars(timeline)
    else:
        from ._base.elsewhere import missing

        raise missing(name)
    member = found[name]
    member.__module__ = __name__
    globals()[name] = member
    return member


_option_names.class_of = lambda name: globals().get(name) or __getattr__(name)
