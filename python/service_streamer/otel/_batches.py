"""The spans of batches, in the process where the model runs. `_worker` imports it when needed."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context

from .._core import __version__
from ._context import unpack
from ._errors import record

FLUSH_TIMEOUT = 2000  # ms

_tracer = trace.get_tracer("service_streamer", __version__)


@contextlib.contextmanager
def batch_span(
    contexts: list[tuple[bytes, int, float]], fields: Mapping[str, Any]
) -> Iterator[Callable[[BaseException], None]]:
    """Make a span for a batch and make it current in the ``with`` block.

    Args:
        contexts: ``Batch.contexts``. The first one is the parent, and all of them are links.
        fields: those of the log record.

    Yields:
        A function that records an error of the batch.
    """
    links = [
        trace.Link(
            unpack(packed),
            {"service_streamer.items": items, "service_streamer.queue_time_seconds": queue_time},
        )
        for packed, items, queue_time in contexts
    ]
    parent = trace.set_span_in_context(trace.NonRecordingSpan(links[0].context), Context())
    attributes = {
        f"service_streamer.{name}": value for name, value in fields.items() if value is not None
    }
    with _tracer.start_as_current_span(
        f"batch {fields['streamer']}", parent, attributes=attributes, links=links
    ) as span:
        yield functools.partial(record, span)


def flush() -> None:
    """Export the spans of this process, which is about to end."""
    force_flush = getattr(trace.get_tracer_provider(), "force_flush", None)
    if force_flush is not None:
        with contextlib.suppress(Exception):  # an exporter's; the worker ends all the same
            force_flush(FLUSH_TIMEOUT)
