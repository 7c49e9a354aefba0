"""The JSON document of ``/stats`` and ``/events``, and its JSON schema."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from .. import hub as _hub
from .._statistics import parts as _parts
from .._statistics import stats as _stats
from .._statistics import time_summary as _time_summary

VERSION = 1
"""of the document; rises when a field is removed or changes its meaning"""

# What the live page does not need: it would be most of an event if there are many workers.
LONG = {"buckets", "decode_time", "encode_time", "transport_time", "last_minute"}

# The classes claim to be from the package itself, so their annotations cannot be looked up there.
_NAMES = {**vars(_hub), **vars(_time_summary), **vars(_parts), **vars(_stats)}

_SIMPLE: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
}


def to_json(value: Any, brief: bool = False) -> Any:
    """Return statistics as JSON values: dataclasses become objects, and all keys str.

    Args:
        value: a dataclass, mapping, tuple, or simple value.
        brief: leave out the fields in `LONG`.
    """
    if dataclasses.is_dataclass(value):
        return {
            field.name: to_json(getattr(value, field.name), brief)
            for field in dataclasses.fields(value)
            if not (brief and field.name in LONG)
        }
    if isinstance(value, Mapping):
        return {str(key): to_json(each, brief) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(each, brief) for each in value]
    if brief and isinstance(value, float):
        return round(value, 7)
    return value


def schema() -> dict[str, Any]:
    """Return the JSON schema of the document (draft 2020-12)."""
    definitions: dict[str, Any] = {}
    stats = _of(_stats.StreamerStats, definitions)
    models = {"type": "object", "additionalProperties": _of(_hub.ModelStatus, definitions)}
    streamer = _object(
        kind=_SIMPLE[str] | {"description": "the class, such as Streamer"},
        label=_SIMPLE[str] | {"description": "its name for people"},
        ready=_SIMPLE[bool],
        reason=_SIMPLE[str] | {"description": "why it is not ready; empty: it is"},
        verdict=_SIMPLE[str] | {"description": "what limits the batch size, from explain()"},
        stats={"anyOf": [stats, _SIMPLE[type(None)]], "description": "null: not known, or a hub"},
        models={"anyOf": [models, _SIMPLE[type(None)]], "description": "of a hub, by name"},
    )
    event = _object(
        id=_SIMPLE[str] | {"description": "unique among all processes"},
        time=_SIMPLE[float] | {"description": "seconds since 1970"},
        streamer=_SIMPLE[str],
        text=_SIMPLE[str],
        settings={"type": "object", "description": "the new values of changed settings"},
    )
    document = _object(
        version={"const": VERSION},
        time=_SIMPLE[float] | {"description": "seconds since 1970"},
        control={"enum": [None, "token", "callable"], "description": "how to change settings"},
        streamers={"type": "object", "additionalProperties": streamer},
        events={"type": "array", "items": event, "description": "the last changes by this process"},
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Statistics of service-streamer",
        **document,
        "$defs": definitions,
    }


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _of(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type annotation. Those of dataclasses go to `definitions`."""
    if kind in _SIMPLE:
        return dict(_SIMPLE[kind])
    if dataclasses.is_dataclass(kind):
        name = typing.cast(type, kind).__name__
        if name not in definitions:
            hints = typing.get_type_hints(kind, _NAMES)
            fields = [field.name for field in dataclasses.fields(kind)]
            properties = {field: _of(hints[field], definitions) for field in fields}
            definitions[name] = _object(**properties)
            definitions[name]["required"] = [each for each in fields if each not in LONG]
        return {"$ref": f"#/$defs/{name}"}
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [_of(each, definitions) for each in arguments]}
    if origin is tuple:
        return {"type": "array", "items": _of(arguments[0], definitions)}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _of(arguments[1], definitions)}
    raise TypeError(f"no JSON schema for {kind!r}")
