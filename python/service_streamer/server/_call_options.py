"""How a request is run: from the headers of HTTP or the metadata of gRPC, and its parameters."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from ._errors import InvalidInput
from ._requests import DEFAULTS, CallOptions
from ._tensors import shown

TIMEOUT, PRIORITY = b"x-request-timeout", b"x-priority"
TENANT, CALLER_KEY = b"x-tenant", b"x-caller-key"

Headers = Mapping[bytes, bytes]
"""by their names in lower case"""


def call_options(headers: Headers) -> CallOptions:
    """Return how a request is to be run, from its headers.

    Raises:
        InvalidInput: a header is invalid.
    """
    get = headers.get
    timeout, priority, tenant, caller_key = (
        get(TIMEOUT),
        get(PRIORITY),
        get(TENANT),
        get(CALLER_KEY),
    )
    if timeout is priority is tenant is caller_key is None:
        return DEFAULTS
    return CallOptions(
        timeout=None if timeout is None else _number(TIMEOUT, timeout, float),
        priority=0 if priority is None else _number(PRIORITY, priority, int),
        tenant=_text(TENANT, tenant),
        caller_key=_text(CALLER_KEY, caller_key),
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


def check_load_parameters(names: Iterable[str]) -> None:
    """Check the names of the parameters with which a client wants to load a model.

    Raises:
        InvalidInput: one of them brings a configuration or files.
    """
    for name in names:
        if name == "config" or name.startswith("file:"):
            raise InvalidInput(f"the parameter {shown(name)} is not supported: the folder of the "
                               "model has its configuration")  # fmt: skip


def _number(name: bytes, value: bytes, kind: type[Any]) -> Any:
    try:
        if len(value) <= 30 and math.isfinite(number := kind(value.decode("ascii"))):
            return number
    except ValueError:
        pass
    raise InvalidInput(f"{name.decode()} must be a number, not {shown(value)}")


def _text(name: bytes, value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"{name.decode()} is not UTF-8: {shown(value)}") from None
