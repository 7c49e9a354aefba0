"""The files of a search: tuned.toml, with options as constructors take them, and the sample."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

_FIRST_LINE = "# Written by service-streamer tune"


def text_of(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of the file.

    Args:
        tables: the values by table and name: str, bool, int or float; None is left out.
    """
    lines = [_FIRST_LINE]
    for table, values in tables.items():
        lines += ["", f"[{table}]"]
        lines += [
            f"{name} = {_value(value)}" for name, value in values.items() if value is not None
        ]
    return "\n".join(lines) + "\n"


def write(path: str, text: str) -> None:
    """Write a file at once: nothing ever sees a part of it.

    Raises:
        OSError: it cannot be written.
    """
    part = f"{path}.part"  # of this search alone, which has locked the journal
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)
        raise


def hash_of(path: str) -> str:
    """Return a short text that another content of the file would change."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]


def _value(value: str | bool | int | float) -> str:
    # JSON escapes a string as TOML does, except for DEL, which it leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
