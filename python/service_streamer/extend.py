"""What a package that extends service-streamer needs, beside the names of `service_streamer`.

A monitor begins with `view_of`:

    >>> from service_streamer import ThreadedStreamer, extend
    >>> streamer = ThreadedStreamer(sorted, batch_size=64)
    >>> view = extend.view_of(streamer)
    >>> outputs = streamer.predict([2, 1])
    >>> view.state, view.stats().items
    ('open', 2)

`service_streamer.hub.view_of` does the same for a `ModelHub`. The packages `metrics`, `otel`, `web`
and `server` read no private member of streamers and hubs.
"""

from ._engine.future import Outcome, outcome_of
from ._engine.lifecycle import after_close_all, after_first_request
from ._streamers.streamer import BaseStreamer
from ._streamers.timeline import BatchRun
from ._streamers.tracing import RequestEnd, RequestSpan, RequestTracer
from ._streamers.view import StreamerView, view_of

__all__ = [
    "BaseStreamer",
    "BatchRun",
    "Outcome",
    "RequestEnd",
    "RequestSpan",
    "RequestTracer",
    "StreamerView",
    "after_close_all",
    "after_first_request",
    "outcome_of",
    "view_of",
]
