"""OpenTelemetry traces and metrics; needs ``pip install "service-streamer-ng[otel]"``.

Each request then has a span, a child of the caller's. Each batch has a span too, which is current
while an ordinary ``predict_function`` runs, and has links to the requests. It is made where the
model runs: in this process, in a worker process, or in a `RedisWorker`. No call is needed there,
only a tracer provider.
"""

from __future__ import annotations

import logging
import weakref
from typing import Any

from .. import __version__
from .._base.messages import missing_package, wrong_option
from ..extend import BaseStreamer, RequestTracer, view_of
from ..hub import ModelHandle, ModelHub
from ..hub import view_of as view_of_hub

try:
    from opentelemetry import trace
except ImportError as _error:
    raise missing_package(_error, "otel") from _error

from . import _meters, _requests
from ._hub import HubTracer

__all__ = ["Instrumentation", "instrument"]

_logger = logging.getLogger("service_streamer")


class Instrumentation:
    """What `instrument` has done to a streamer or a hub. Leaving its ``with`` block undoes it.

    Example:
        >>> streamer = ThreadedStreamer(sorted, batch_size=64)
        >>> with otel.instrument(streamer, "sentiment"):
        ...     outputs = streamer.predict([1, 2])  # makes a span
        >>> outputs = streamer.predict([1, 2])  # makes none
    """

    def __init__(
        self, streamer: BaseStreamer | ModelHub | ModelHandle, tracer: RequestTracer | HubTracer
    ) -> None:
        self._streamer = weakref.ref(streamer)
        self._tracer = tracer

    def uninstrument(self) -> None:
        """Make no more spans and metrics for the streamer. May be called more than once.

        Requests in flight keep their spans.
        """
        streamer = self._streamer()
        if isinstance(self._tracer, HubTracer):
            if isinstance(streamer, ModelHub | ModelHandle):
                view_of_hub(streamer).stop_tracing(self._tracer)
        elif isinstance(streamer, BaseStreamer) and view_of(streamer).stop_tracing(self._tracer):
            _meters.remove(streamer)

    def __enter__(self) -> Instrumentation:
        return self

    def __exit__(self, *raised: object) -> None:
        self.uninstrument()


def instrument(
    streamer: BaseStreamer | ModelHub | ModelHandle,
    name: str | None = None,
    *,
    tracer_provider: Any = None,
    meter_provider: Any = None,
) -> Instrumentation:
    """Make spans for the requests of a streamer or a hub, and report statistics as metrics.

    It does not keep the streamer alive. A child that is forked later is instrumented too. If the
    streamer is instrumented already, that is logged and nothing changes.

    Args:
        streamer: any streamer; a `ModelHub`; or a model of a hub, with all its versions.
        name: the name of the streamer in spans and metrics. None: the one in its ``repr``, or "hub"
            for a hub.
        tracer_provider: of the spans of requests. None: the global one. The spans of batches
            always come from the global tracer provider of the process where the model runs.
        meter_provider: of the metrics. None: the global one. A client process reports none: the
            process with the `Streamer` does. A hub reports none: use `service_streamer.metrics`.

    Raises:
        ValueError: the name is empty, or in use by another streamer of this meter provider; or a
            hub has a meter provider.
        TypeError: `streamer` or `name` has the wrong type.
        StreamerClosed: the streamer is closed.

    Example:
        >>> streamer = ThreadedStreamer(sorted, batch_size=64)
        >>> instrumentation = otel.instrument(streamer, "sentiment")
        >>> outputs = streamer.predict([1, 2])
        >>> instrumentation.uninstrument()
    """
    if not isinstance(streamer, BaseStreamer | ModelHub | ModelHandle):
        raise wrong_option(
            f"streamer must be a streamer or a ModelHub, not {streamer!r}", TypeError
        )
    if name is not None and not isinstance(name, str):
        raise wrong_option(f"name must be a str, not {name!r}", TypeError)
    if name == "":
        raise wrong_option("name must not be empty: leave it out, or give the name for the spans")
    if not isinstance(streamer, BaseStreamer):
        if meter_provider is not None:
            raise wrong_option(
                "meter_provider is not for a hub: use service_streamer.metrics.register(hub)"
            )
        hub = view_of_hub(streamer)
        hub.check_open()
        spans = trace.get_tracer("service_streamer", __version__, tracer_provider)
        of_hub = HubTracer(spans, "hub" if name is None else name)
        if not hub.start_tracing(of_hub):
            about = {"streamer": of_hub.name}
            _logger.warning("%r is already instrumented", streamer, extra=about)
        return Instrumentation(streamer, of_hub)
    view = view_of(streamer)
    view.check_open()
    streamer = view.streamer or streamer
    shown = view.name if name is None else name
    if (tracer := view.tracer) is not None:
        _logger.warning("%r is already instrumented", streamer, extra={"streamer": shown})
    else:
        spans = trace.get_tracer("service_streamer", __version__, tracer_provider)
        _meters.add(streamer, shown, meter_provider)
        span_name = "predict" if name is None else f"predict {name}"
        tracer = _requests.Tracer(spans, span_name, shown)
        view.start_tracing(tracer)
    return Instrumentation(streamer, tracer)
