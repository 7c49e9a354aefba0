"""The process in which a version is tried before it is published; see `ModelHub.publish`.

It is a command because ``expected.json`` has requests of the server, which the hub does not know.
"""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base.messages import describe, short
from ..hub import ModelHub, view_of
from .logs import say

if TYPE_CHECKING:
    from collections.abc import Callable

EXPECTED = "expected.json"
TOLERANCE = 1e-3
_FIELDS = {"inputs", "outputs", "parameters", "tolerance"}


def main(folder: str, name: str, number: int) -> bool:
    """Load a version, and compare its outputs. Return False and say why, if it must not serve.

    Args:
        folder: of models; it has this version alone.
        name: of the model.
        number: of the version.
    """
    try:
        with ModelHub.watch(folder) as hub:
            view_of(hub).let_serve(name, number)
            hub.load(name)
            file = Path(folder, name, str(number), EXPECTED)
            if file.exists():
                _compare(hub, name, number, file)
    except Exception as error:
        say(describe(error))
        return False
    return True


def _compare(hub: ModelHub, name: str, number: int, file: Path) -> None:
    """Raise ValueError if the outputs are not those that a file tells."""
    from ..server import create_app

    case = json.loads(file.read_bytes())
    if not isinstance(case, dict) or not {"inputs", "outputs"} <= case.keys() <= _FIELDS:
        raise ValueError(f"{file.name} must have inputs, outputs and perhaps tolerance, as objects "
                         "of the Open Inference Protocol")  # fmt: skip
    tolerance = case.pop("tolerance", TOLERANCE)
    expected = case.pop("outputs")
    path = f"/v2/models/{name}/versions/{number}/infer"
    status, answer = asyncio.run(_ask(create_app(hub), path, json.dumps(case).encode()))
    if status != 200:
        raise ValueError(f"{file.name}: {answer.get('error')}")
    found = {each["name"]: each for each in answer["outputs"]}
    for output in expected:
        shown = f"{file.name}: output {output.get('name')!r}"
        actual = found.get(output.get("name"))
        if actual is None:
            raise ValueError(f"{shown} is not one of the model: {', '.join(found)}")
        for field in ("datatype", "shape"):
            if field in output and output[field] != actual[field]:
                raise ValueError(f"{shown} has the {field} {actual[field]}, not {output[field]}")
        wanted = _flat(output.get("data"))
        if len(wanted) != len(actual["data"]):
            raise ValueError(f"{shown} has {len(actual['data'])} values, not {len(wanted)}")
        for place, (value, other) in enumerate(zip(actual["data"], wanted, strict=True)):
            if not _are_close(value, other, tolerance):
                raise ValueError(f"{shown}: value {place} is {short(value)}, not {short(other)}, "
                                 f"within a tolerance of {tolerance:g}")  # fmt: skip


def _are_close(value: Any, other: Any, tolerance: float) -> bool:
    if isinstance(value, float) and isinstance(other, int | float):
        return math.isclose(value, other, rel_tol=tolerance, abs_tol=tolerance)
    return bool(value == other)


def _flat(data: Any) -> list[Any]:
    if not isinstance(data, list):
        return [data]
    return [each for part in data for each in _flat(part)]


async def _ask(app: Callable[..., Any], path: str, body: bytes) -> tuple[int, Any]:
    """Send one request to an application of ASGI. Return the status and the JSON of the answer."""
    headers = [(b"content-length", str(len(body)).encode())]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    sent: list[Any] = []
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if not left:
            await asyncio.Event().wait()  # the client stays
        return left.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    content = b"".join(each.get("body", b"") for each in sent)
    return sent[0]["status"], json.loads(content)
