"""What a package that extends service-streamer needs, beside the names of `service_streamer`.

A monitor begins with `view_of`:

    >>> from service_streamer import ThreadedStreamer, extend
    >>> streamer = ThreadedStreamer(sorted, batch_size=64)
    >>> view = extend.view_of(streamer)
    >>> outputs = streamer.predict([2, 1])
    >>> view.state, view.stats().items
    ('open', 2)

A back end begins with `WaitingRoom`, whose threads hand batches on, and `BackendStreamer`:

    >>> class Doubler(extend.WaitingRoom):
    ...     def hand_on(self, batch):
    ...         batch.complete([2 * item for item in batch.items])
    >>> doubler = extend.BackendStreamer(extend.Options(batch_size=64), Doubler)
    >>> doubler.predict([1, 2])
    [2, 4]

`service_streamer.hub.view_of` does the same for a `ModelHub`. The packages `metrics`, `otel`, `web`
and `server` read no private member of streamers and hubs.
"""

from ._base.grouping import grouping
from ._base.options import Options
from ._engine.backend import Backend, Batch, EngineLike
from ._engine.future import Outcome, outcome_of
from ._engine.lifecycle import after_close_all, after_first_request
from ._engine.waiting_room import WaitingRoom
from ._models.serving import answer
from ._streamers.streamer import BackendStreamer, BaseStreamer
from ._streamers.timeline import BatchRun
from ._streamers.tracing import BatchRecord, RequestEnd, RequestSpan, RequestTracer
from ._streamers.view import StreamerView, view_of

__all__ = [
    "Backend",
    "BackendStreamer",
    "BaseStreamer",
    "Batch",
    "BatchRecord",
    "BatchRun",
    "EngineLike",
    "Options",
    "Outcome",
    "RequestEnd",
    "RequestSpan",
    "RequestTracer",
    "StreamerView",
    "WaitingRoom",
    "after_close_all",
    "after_first_request",
    "answer",
    "grouping",
    "outcome_of",
    "view_of",
]
