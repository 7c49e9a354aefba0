"""How other packages extend service-streamer: back ends over a transport of their own.

A back end begins with `WaitingRoom`, whose threads hand batches on, and `BackendStreamer`:

    >>> from service_streamer.extend import BackendStreamer, Options, WaitingRoom
    >>> class Doubler(WaitingRoom):
    ...     def hand_on(self, batch):
    ...         batch.complete([2 * item for item in batch.items])
    >>> streamer = BackendStreamer(Options(batch_size=64), Doubler)
    >>> streamer.predict([1, 2])
    [2, 4]
"""

from ._base.options import Options
from ._engine.backend import Backend, Batch, EngineLike
from ._engine.waiting_room import WaitingRoom
from ._models.serving import answer
from ._streamers.streamer import BackendStreamer

__all__ = [
    "Backend",
    "BackendStreamer",
    "Batch",
    "EngineLike",
    "Options",
    "WaitingRoom",
    "answer",
]
