"""How a request is run: from the headers of HTTP or the metadata of gRPC, and its parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ._errors import InvalidInput
from ._service import CallOptions
from ._tensors import shown

Header = Callable[[str], str | None]
"""returns the value of a header, by its name in lower case"""

TIMEOUT, PRIORITY, TENANT, CALLER_KEY = (
    "x-request-timeout",
    "x-priority",
    "x-tenant",
    "x-caller-key",
)


def call_options(header: Header, parameters: Mapping[str, Any] | None = None) -> CallOptions:
    """Return how a request is to be run.

    Args:
        header: of the request.
        parameters: of the Open Inference Protocol. A header comes before a parameter.

    Raises:
        InvalidInput: a header or a parameter is invalid.
    """
    parameters = parameters or {}
    options = CallOptions(tenant=header(TENANT), caller_key=header(CALLER_KEY))
    if (text := header(TIMEOUT)) is not None:
        options.timeout = _number(TIMEOUT, text, float)
    elif limit := natural(parameters, "timeout"):
        options.timeout = limit / 1e6  # it is in microseconds
    if (text := header(PRIORITY)) is not None:
        options.priority = _number(PRIORITY, text, int)
    else:
        options.priority = natural(parameters, "priority") or 0
    return options


def natural(parameters: Mapping[str, Any], name: str) -> int | None:
    """Return a parameter that is an int of at least 0; None: it is not given.

    Raises:
        InvalidInput: it is something else.
    """
    value = parameters.get(name)
    if value is None or (type(value) is int and value >= 0):
        return value
    raise InvalidInput(f"{name} must be an int of at least 0, not {shown(value)}")


def _number(name: str, text: str, kind: type[Any]) -> Any:
    try:
        if len(text) <= 30 and math.isfinite(number := kind(text)):
            return number
    except ValueError:
        pass
    raise InvalidInput(f"{name} must be a number, not {shown(text)}")
