"""The file with which an interrupted search goes on."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from ...._base.messages import short


class JournalError(Exception):
    """The file cannot be used. The message says why, and what to do."""


class _OneWriter:
    """The lock of optuna's journal. It does nothing: `open_journal` has locked the file."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


@contextlib.contextmanager
def open_journal(path: str) -> Iterator[JournalStorage]:
    """Open the file, or create it. No other process can open it meanwhile.

    The lock is that of the kernel: it ends with the process, also with one that is killed.

    Raises:
        JournalError: another process writes it, or it is no journal.
        OSError: it cannot be written.
    """
    with open(path, "a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JournalError(f"another search writes {path}: wait for it, or use -o") from None
        file.seek(0)
        text = file.read()
        if text and not text.startswith(b'{"op_code":'):
            raise JournalError(f"{path} is not the file of a search: remove it, or use another -o")
        if not text.endswith(b"\n"):  # a killed process has not written the line to its end
            file.truncate(text.rfind(b"\n") + 1)
        yield JournalStorage(JournalFileBackend(path, lock_obj=_OneWriter()))


def check_same_search(study: Any, about: Mapping[str, Any], path: str) -> None:
    """Remember what a search is about. If it goes on: check that it still is.

    Raises:
        JournalError: something differs.
    """
    known = study.user_attrs.get("about")
    given = json.loads(json.dumps(about))  # as it comes back from the file
    if known is None:
        study.set_user_attr("about", given)
        return
    for name in sorted({*known, *given}):
        if known.get(name) != given.get(name):
            raise JournalError(
                f"{path} is of a search with {name}={short(known.get(name))}, not "
                f"{short(given.get(name))}: remove it to begin again, or use another -o"
            )


def remove_journal(path: str) -> None:
    """Remove the file of a search that is complete."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
