"""How a request is run: from the headers of HTTP or the metadata of gRPC, and its parameters."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from ._errors import InvalidInput
from ._parameters import natural
from ._requests import DEFAULTS, CallOptions
from ._tensors import shown

TIMEOUT, PRIORITY = b"x-request-timeout", b"x-priority"
TENANT, CALLER_KEY = b"x-tenant", b"x-caller-key"

_LOWEST = 2**31  # priority of the protocol

Headers = Mapping[bytes, bytes]
"""headers by their names in lower case"""


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

    Of the parameter ``priority`` 1 is the highest and the default, as 0 is, and larger ones are
    lower: so it is in Triton. In the header, as in the hub, larger ones are higher.

    Raises:
        InvalidInput: a parameter is invalid.
    """
    limit, priority = natural(parameters, "timeout"), natural(parameters, "priority")
    if limit and options.timeout is None:
        options = dataclasses.replace(options, timeout=limit / 1e6)  # it is in microseconds
    if priority and priority > _LOWEST:
        raise InvalidInput(f"priority must be at most {_LOWEST}, not {priority}")
    if priority and not options.priority:
        options = dataclasses.replace(options, priority=1 - priority)
    return options


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
