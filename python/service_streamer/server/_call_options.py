"""How a request is run: from the headers of HTTP or the metadata of gRPC, and its parameters."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from ._errors import InvalidInput
from ._service import DEFAULTS, CallOptions
from ._tensors import shown

TIMEOUT, PRIORITY, TENANT, CALLER_KEY = (
    "x-request-timeout",
    "x-priority",
    "x-tenant",
    "x-caller-key",
)

Header = Callable[[str], str | None]
"""returns the value of a header, by its name in lower case"""


def call_options(header: Header) -> CallOptions:
    """Return how a request is to be run, from its headers.

    Raises:
        InvalidInput: a header is invalid.
    """
    found = tuple(map(header, (TIMEOUT, PRIORITY, TENANT, CALLER_KEY)))
    if found == (None, None, None, None):
        return DEFAULTS
    timeout, priority, tenant, caller_key = found
    return CallOptions(
        timeout=None if timeout is None else _number(TIMEOUT, timeout, float),
        priority=0 if priority is None else _number(PRIORITY, priority, int),
        tenant=tenant,
        caller_key=caller_key,
    )


def with_parameters(options: CallOptions, parameters: Mapping[str, Any]) -> CallOptions:
    """Return the options of a request. Those of its headers are above its parameters.

    Raises:
        InvalidInput: a parameter is invalid.
    """
    limit, priority = natural(parameters, "timeout"), natural(parameters, "priority")
    if limit and options.timeout is None:
        options = dataclasses.replace(options, timeout=limit / 1e6)  # it is in microseconds
    if priority and not options.priority:
        options = dataclasses.replace(options, priority=priority)
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
