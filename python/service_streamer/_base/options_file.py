"""``options="tuned.toml"``: the options of a streamer in a file."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from .messages import short, wrong_option

if TYPE_CHECKING:
    from .toml import TomlFile

TABLES = ("options", "tuned")


@dataclasses.dataclass(frozen=True)
class OptionsFile:
    """The table ``[options]`` of a TOML file. A table ``[tuned]`` says how they were found.

    Compared by its contents.
    """

    values: dict[str, Any] = dataclasses.field(default_factory=dict)
    source: TomlFile | None = None
    """the file; None: there is none, and so there are no options"""

    @classmethod
    def of(cls, given: Any) -> OptionsFile:
        """Return what a user has given as ``options``: a path, a file that was read, or None.

        Raises:
            TypeError: it is not a path.
            FileNotFoundError: there is no such file.
            ValueError: the file has something else. The message names the file and the line.
            ImportError: Python 3.10 has no tomli.
        """
        if given is None:
            return cls()
        if isinstance(given, cls):
            return given
        if not isinstance(given, str | os.PathLike):
            remedy = ": unpack it, **options" if isinstance(given, dict) else ""
            raise wrong_option(
                'options must be the path of a TOML file, such as "tuned.toml", not '
                f"{short(given)}{remedy}",
                TypeError,
            )
        if not (path := os.fsdecode(given)):
            raise wrong_option("options='': it must be the path of a file, such as \"tuned.toml\"")
        return cls._read(path)

    @classmethod
    def _read(cls, path: str) -> OptionsFile:
        from .toml import TomlFile  # only where there is a file

        if not os.path.exists(path):
            raise wrong_option(
                f"options={path!r}: {os.path.abspath(path)} does not exist; give the path of a "
                "file with a table [options]",
                FileNotFoundError,
            )
        source = TomlFile.read(path)
        for name in source.values:
            if name not in TABLES:
                raise wrong_option(
                    f"{source.where('', name)}: {name!r} is not known: options are in the table "
                    "[options]"
                )
        values = source.values.get("options")
        if not isinstance(values, dict):
            raise wrong_option(f"{path} has no table [options]")
        if "options" in values:
            where = source.where("options", "options")
            raise wrong_option(f"{where}: options={values['options']!r}: one file has them all")
        return cls(values, source)

    @property
    def path(self) -> str:
        """Of the file; empty: there is none."""
        return "" if self.source is None else str(self.source.path)

    @property
    def is_tuned(self) -> bool:
        """True if the options were found by a search."""
        return self.source is not None and "tuned" in self.source.values

    def without(self, names: Collection[str]) -> OptionsFile:
        """Return the file without these options."""
        left = {name: value for name, value in self.values.items() if name not in names}
        return OptionsFile(left, self.source)

    def where(self, name: str) -> str:
        """Return the file and the line of an option, for a message."""
        return "" if self.source is None else self.source.where("options", name)

    @contextlib.contextmanager
    def blamed(self, names: Collection[str]) -> Iterator[None]:
        """Add the file and the line to an error about one of these options."""
        try:
            yield
        except (TypeError, ValueError) as error:
            first = str(error).partition("\n")[0]
            found = next((word for word in re.findall(r"\w+", first) if word in names), None)
            if found is None or type(error) not in (TypeError, ValueError):
                raise
            text = f"{self.where(found)}: {error}"
            raise type(error)(text).with_traceback(error.__traceback__) from None
