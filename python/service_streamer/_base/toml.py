"""A TOML file of the user. The messages about it name the file and the line."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path
from typing import Any

from .messages import missing_package

if sys.version_info >= (3, 11):
    import tomllib
else:
    try:
        import tomli as tomllib
    except ImportError as _error:
        raise missing_package(_error, "hub") from _error

MAX_SIZE = 1_000_000  # bytes


@dataclasses.dataclass(frozen=True)
class TomlFile:
    """The contents of a TOML file."""

    path: Path
    text: str
    values: dict[str, Any]

    @classmethod
    def read(cls, path: str | Path) -> TomlFile:
        """Read a file.

        Raises:
            ValueError: it is invalid. The message names the file and the line.
            OSError: it cannot be read.
        """
        path = Path(path)
        return cls.of(path, _text_of(path))

    @classmethod
    def of(cls, path: Path, text: str) -> TomlFile:
        """Parse the text of a file, or of a part of it.

        Raises:
            ValueError: it is invalid. The message names the file and the line.
        """
        try:
            return cls(path, text, tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:  # it tells the line
            raise ValueError(f"{path}: {error}") from None
        except RecursionError:
            raise ValueError(f"{path}: arrays or tables are nested too deeply") from None

    def where(self, table: str, name: str) -> str:
        """Return the file and the number of the line that sets a field of a table.

        Args:
            table: "" for a field, or a table, at the top.
            name: of the field.
        """
        return f"{self.path}, line {self._line_of(table, name)}"

    def _line_of(self, table: str, name: str) -> int:
        """Return the number of the line; 1: it was not found."""
        current = ""
        for number, line in enumerate(self.text.splitlines(), start=1):
            if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line):
                current = header[1].strip("\"'")
                if not table and current.split(".")[0] == name:
                    return number
                if table and current == f"{table}.{name}":
                    return number
            elif current == table and re.match(rf"""\s*["']?{re.escape(name)}["']?\s*[.=]""", line):
                return number
        return 1


def _text_of(path: Path) -> str:
    if not path.is_file():  # reading another kind could block
        raise ValueError(f"{path} is not a file")
    size = path.stat().st_size
    if size > MAX_SIZE:
        raise ValueError(f"{path} has {size} bytes, more than {MAX_SIZE}")
    raw = path.read_bytes()
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: {error}") from None
