"""The files of the live page. They are read once; nothing outside the package is served."""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from .._redis.protocol import CLAIM_AFTER
from .._statistics.explain import REASONS

if TYPE_CHECKING:
    from importlib.abc import Traversable

_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


class Asset(NamedTuple):
    """One file."""

    body: bytes
    media_type: str
    etag: str


@functools.cache
def assets() -> dict[str, Asset]:
    """Return all files by their path below ``static/``. The page is index.html."""
    found = {
        path: _asset(path, file.read_bytes())
        for path, file in _files(importlib.resources.files(__package__) / "static", "")
    }
    constants = {"REASONS": REASONS, "SILENT_AFTER": CLAIM_AFTER}
    lines = [f"export const {name} = {json.dumps(value)};\n" for name, value in constants.items()]
    return {**found, "js/constants.js": _asset("js/constants.js", "".join(lines).encode())}


def _asset(path: str, body: bytes) -> Asset:
    etag = hashlib.sha256(body).hexdigest()[:16]
    return Asset(body, _TYPES[path.rpartition(".")[2]], f'"{etag}"')


def _files(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for each in folder.iterdir():
        path = prefix + each.name
        if each.is_dir():
            yield from _files(each, f"{path}/")
        elif path.rpartition(".")[2] in _TYPES:
            yield path, each
