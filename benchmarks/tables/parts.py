"""The parts of the results: their rows, and the lines about the machine above their tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .figures import Row
from .rows_monitoring import MONITORING_ROWS
from .rows_native import NATIVE_ROWS
from .rows_processes import PROCESS_ROWS
from .rows_ray import RAY_ROWS
from .rows_redis import REDIS_ROWS
from .rows_slo import SLO_ROWS
from .rows_threads import THREAD_ROWS

SHOWN_VERSIONS = (
    "batched",
    "mosec",
    "litserve",
    "bentoml",
    "ray",
    "flask",
    "gunicorn",
    "granian",
    "fastapi",
    "uvicorn",
    "uvloop",
)
ROWS = (
    *THREAD_ROWS,
    *PROCESS_ROWS,
    *REDIS_ROWS,
    *RAY_ROWS,
    *MONITORING_ROWS,
    *SLO_ROWS,
    *NATIVE_ROWS,
)

Part = Mapping[str, Any]
"""The content of results/<part>.json: the cases of one part, and how they were measured."""


def rows_of(data: Part) -> list[Row]:
    """The rows with at least one measured case."""
    return [row for row in ROWS if any(figure.case in data["cases"] for figure in row.figures)]


def heading(data: Part) -> list[str]:
    machine = data["machine"]
    versions: dict[str, str] = {}
    for name in ("ours", "original", "batched", "mosec", "litserve", "bentoml", "rayserve"):
        versions |= data["versions"].get(name, {})
    shown = ", ".join(f"{name} {versions[name]}" for name in SHOWN_VERSIONS if name in versions)
    package = data["package"]
    kind = "one short run" if data["quick"] else f"medians of {data['runs']} runs"
    how = f"`{data['command']}` in {data['minutes']} minutes: {kind}"
    lines = [
        f"Measured {data['date'][:10]} by {how}.",
        "",
        f"Machine: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, "
        f"Linux {machine['kernel']}, CPython {machine['python']}; "
        f"load average before the run {machine['load_before']}.",
        "",
        f"Versions: ours {package['version']} ({package['commit']}), original 0.1.2, {shown}.",
        "",
    ]
    if data["skipped"]:
        lines.append("Not measured:")
        lines += [f"- {what}: {' '.join(why.split())}" for what, why in data["skipped"].items()]
        lines.append("")
    return lines
