"""tuned.toml: the options that were found, as constructors take them."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from typing import Any


def text_of(comment: str, tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of the file.

    Args:
        comment: its first line.
        tables: the values by table and name: str, bool, int or float; None is left out.
    """
    lines = [f"# {comment}"]
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
    folder = os.path.dirname(os.path.abspath(path))
    with tempfile.NamedTemporaryFile("w", dir=folder, encoding="utf-8", delete=False) as file:
        file.write(text)
    try:
        os.chmod(file.name, 0o644)
        os.replace(file.name, path)
    except OSError:
        os.remove(file.name)
        raise


def _value(value: str | bool | int | float) -> str:
    # JSON escapes a string as TOML does, except for DEL, which it leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
