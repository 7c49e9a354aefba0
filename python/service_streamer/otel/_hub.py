"""The spans of requests to the models of a hub."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.context import Context

from .._base.request_context import trace_of
from .._models.spans.context import unpack
from .._models.spans.errors import safely
from ..hub import VersionView
from ._requests import Tracer


class HubTracer:
    """Makes the `VersionTracer` of each version of a hub, or of one of its models.

    Args:
        tracer: makes the spans.
        name: the attribute ``streamer``.
    """

    def __init__(self, tracer: trace.Tracer, name: str) -> None:
        self.tracer = tracer
        self.name = name

    def __call__(self, version: VersionView) -> VersionTracer:
        return VersionTracer(self, version)


class VersionTracer(Tracer):
    """Makes the spans of the requests of one version, also of those that wait until it is loaded.

    Any thread may call the methods.
    """

    def __init__(self, owner: HubTracer, version: VersionView) -> None:
        model = version.model_name
        self._wait_name = f"wait for {model}"
        self._attributes = {
            "service_streamer.model": model,
            "service_streamer.version": version.number,
        }
        super().__init__(owner.tracer, f"predict {model}", owner.name, self._attributes)

    def wait(self, context: bytes | None) -> trace.Span:
        """Start the span of the time in which a request waits for a load.

        Args:
            context: of the request.
        """
        packed = b"" if context is None else trace_of(context)
        if not packed:
            return trace.INVALID_SPAN
        parent = trace.set_span_in_context(trace.NonRecordingSpan(unpack(packed)), Context())
        span = safely(self._tracer.start_span, self._wait_name, parent, attributes=self._attributes)
        return span or trace.INVALID_SPAN
