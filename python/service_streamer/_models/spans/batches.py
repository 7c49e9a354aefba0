"""The spans of batches, in the process where the model runs. `serving` imports it when needed."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context

from ... import _core
from ..._base.request_context import trace_of
from ..._engine import lifecycle
from .context import unpack
from .errors import record, safely

FLUSH_TIMEOUT = 2000  # ms

_tracer = trace.get_tracer("service_streamer", _core.__version__)


Active = Callable[[], contextlib.AbstractContextManager[object]]


@contextlib.contextmanager
def batch_span(
    traces: list[tuple[bytes, int, float, int]], fields: Mapping[str, Any]
) -> Iterator[tuple[Active, Callable[[BaseException], None]]]:
    """Make a span for a batch, which lasts until the end of the ``with`` block.

    Args:
        traces: ``Batch.contexts``, of the requests with a trace. The first one is the parent, and
            all of them are links.
        fields: those of the log record.

    Yields:
        A function that makes the context in which the span is current; and a function that records
        an error of the batch.
    """
    span = safely(_start, _tracer, traces, fields) or trace.INVALID_SPAN
    active = functools.partial(
        trace.use_span, span, record_exception=False, set_status_on_exception=False
    )
    try:
        yield active, functools.partial(record, span)
    finally:
        safely(span.end)


class StepsSpan:
    """The span of an item of a `StepModel`. Its methods are called by the thread of the model.

    Args:
        traces: as for `batch_span`, of the one request.
        fields: become attributes.
        start_time: in ns since the epoch.
    """

    def __init__(
        self,
        traces: list[tuple[bytes, int, float, int]],
        fields: Mapping[str, Any],
        start_time: int,
    ) -> None:
        span = safely(_start, _tracer, traces, fields, start_time, "steps")
        self._span = span or trace.INVALID_SPAN

    def first_output(self) -> None:
        """Add the event of the first output."""
        safely(self._span.add_event, "first output")

    def end(self, steps: int, outputs: int, error: BaseException | None) -> None:
        """End the span: the item has left."""
        counts = {"service_streamer.steps": steps, "service_streamer.outputs": outputs}
        self._span.set_attributes(counts)
        if error is not None:
            record(self._span, error)
        safely(self._span.end)


def ended_batch(tracer: trace.Tracer, name: str, record: _core._BatchRecord) -> None:
    """Make the span of a batch that has ended in a thread of a native model."""
    contexts, items, requests, close_reason, oldest_wait, since_begin, since_end, error = record
    now = time.time_ns()
    fields = {
        "streamer": name,
        "worker_pid": os.getpid(),
        "items": items,
        "requests": requests,
        "close_reason": close_reason,
        "oldest_wait_seconds": oldest_wait,
    }
    traces = [(lines, *rest) for context, *rest in contexts if (lines := trace_of(context))]
    if not traces:
        return  # only streams without a trace
    start_time = now - round(since_begin * 1e9)
    span = safely(_start, tracer, traces, fields, start_time) or trace.INVALID_SPAN
    if error is not None:
        span.set_status(trace.StatusCode.ERROR, error)
    safely(span.end, now - round(since_end * 1e9))


def _start(
    tracer: trace.Tracer,
    traces: list[tuple[bytes, int, float, int]],
    fields: Mapping[str, Any],
    start_time: int | None = None,
    kind: str = "batch",
) -> trace.Span:
    links = [
        trace.Link(
            unpack(packed),
            {"service_streamer.items": items, "service_streamer.queue_time_seconds": queue_time},
        )
        for packed, items, queue_time, _ in traces
    ]
    parent = trace.set_span_in_context(trace.NonRecordingSpan(links[0].context), Context())
    attributes = {
        f"service_streamer.{name}": value for name, value in fields.items() if value is not None
    }
    return tracer.start_span(
        f"{kind} {fields['streamer']}",
        parent,
        attributes=attributes,
        links=links,
        start_time=start_time,
    )


def flush() -> None:
    """Export the spans of this process, which is about to end."""
    force_flush = getattr(trace.get_tracer_provider(), "force_flush", None)
    if force_flush is not None:
        with contextlib.suppress(Exception):  # an exporter's; the worker ends all the same
            force_flush(FLUSH_TIMEOUT)


lifecycle.before_worker_ends(flush, last=True)  # readers wait for the pieces of their streams
