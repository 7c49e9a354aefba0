"""The view of hubs: a row for each version of each model, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ..._statistics.formats import age, count, memory
from .parts import NARROW, table
from .sources import PageStats

_STYLES = {"ready": "green", "loading": "yellow", "draining": "yellow", "failed": "bold red"}
_UNLOADED = "unloaded"
_MOST_ERRORS = 3


def view(name: str, stats: PageStats, before: PageStats | None, width: int) -> RenderableType:
    """Return what is shown.

    Args:
        name: of the source.
        stats: of now.
        before: those of the last reading. None: this is the first one.
        width: of the terminal in columns.
    """
    parts: list[RenderableType] = [Text(name, style="bold", no_wrap=True, overflow="ellipsis")]
    for hub, each in stats.hubs.items():
        earlier = {} if before is None else before.hubs.get(hub, {}).get("models", {})
        seconds = 0.0 if before is None else stats.time - before.time
        models = each["models"]
        title = f"{hub}: {count(len(models), 'model')}" + ("" if each["ready"] else ", not ready")
        parts += [Text(title, style="dim", no_wrap=True, overflow="ellipsis"), ""]
        parts += _rows(models, earlier, stats.time, seconds, width)
        parts += ["", Text(each["verdict"], style="italic")]
    return Group(*parts)


def _rows(
    models: Mapping[str, Any], earlier: Mapping[str, Any], now: float, seconds: float, width: int
) -> list[RenderableType]:
    narrow = width < NARROW
    room = max(8, width - (24 if narrow else 58))
    rows, errors = [], []
    for name, model in sorted(models.items()):
        if model["error"]:
            errors.append(model["error"])
        for number, each in model["versions"].items():
            full = f"{name}@{number}"
            if each["error"]:
                errors.append(each["error"])
            previous = earlier.get(name, {"versions": {}})["versions"].get(number)
            cells = [
                _name(full, room),
                Text(each["state"], style=_STYLES.get(each["state"], "dim")),
                "-" if each["memory"] is None else memory(each["memory"]),
            ]
            if not narrow:
                cells[1:1] = [_marks(model, each["version"])]
                cells += [f"{each['requests']:,}", _rate(each, previous, seconds)]
                cells += [f"{each['waiting']:,}", _ago(each["last_use"], now)]
            rows.append((each["state"] == _UNLOADED, cells))
    rows.sort(key=lambda row: row[0])  # what is loaded comes first
    more = [] if narrow else ["requests", "/s", "waiting", "used"]
    headings = ["model", *([] if narrow else [""]), "state", "memory", *more]
    told = [
        Text(why, style="red", no_wrap=True, overflow="ellipsis") for why in errors[:_MOST_ERRORS]
    ]
    return [table(headings, [cells for _, cells in rows], left=2 if narrow else 3), *told]


def _name(full: str, room: int) -> str:
    return full if len(full) <= room else full[: room - 1] + "…"


def _marks(model: Mapping[str, Any], version: int) -> str:
    marks = ["serves"] if version == model["serving"] else []
    if marks and model.get("degraded"):
        marks.append("degraded")
    canary = model["canary"]
    if canary is not None and canary["ended"] is None and canary["version"] == version:
        marks.append("canary")
    return " ".join([*marks, *(["pinned"] if model["pinned"] else [])])


def _rate(version: Mapping[str, Any], before: Mapping[str, Any] | None, seconds: float) -> str:
    if before is None or seconds <= 0:
        return "-"
    return f"{max(0, version['requests'] - before['requests']) / seconds:,.0f}"


def _ago(last_use: float | None, now: float) -> str:
    return "-" if last_use is None else f"{age(max(0.0, now - last_use))} ago"
