"""How an error is shown in a span, and what happens to errors of the SDK."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

from opentelemetry import trace

from ..._base.messages import describe

_logger = logging.getLogger("service_streamer")


def record(span: trace.Span, error: BaseException) -> None:
    """Add an exception to a span, and mark the span as failed."""
    with contextlib.suppress(Exception):  # the __str__ of the exception raises
        span.record_exception(error)
    span.set_status(trace.StatusCode.ERROR, describe(error))


def safely(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function of the SDK and return its result, or None if it raises.

    A sampler or a span processor may raise, which must not fail a request.
    """
    try:
        return function(*args, **kwargs)
    except Exception as error:
        about = {"error": type(error).__name__}
        _logger.warning("a span cannot be made", exc_info=True, extra=about)
        return None
