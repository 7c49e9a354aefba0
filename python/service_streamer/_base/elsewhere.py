"""Where the public names are that the package itself does not have, such as `NativeModel`."""

from __future__ import annotations

import functools


def missing(name: str) -> Exception:
    """Return the error of a name that the package does not have.

    If one of its packages has it, that is an `ImportError` with the line that imports it.
    """
    places = [] if name.startswith("_") else _places().get(name, [])
    if not places:
        return AttributeError(f"module 'service_streamer' has no attribute {name!r}")
    lines = " or ".join(f"from {place} import {name}" for place in places)
    return ImportError(f"cannot import name {name!r} from 'service_streamer': write {lines}")


@functools.cache
def _places() -> dict[str, list[str]]:
    """Return the packages that list a name in ``__all__``. Nothing is imported for that."""
    import pathlib  # only for a mistake
    import re

    found: dict[str, list[str]] = {}
    for file in sorted(pathlib.Path(__file__).parents[1].glob("[a-z]*/__init__.py")):
        listed = re.search(r"^__all__ = \[([^]]*)\]", file.read_text("utf-8"), re.MULTILINE)
        for name in re.findall(r'"(\w+)"', listed[1] if listed else ""):
            found.setdefault(name, []).append(f"service_streamer.{file.parent.name}")
    return found
