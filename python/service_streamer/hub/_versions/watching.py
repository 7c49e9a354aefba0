"""The thread that watches a folder of models."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..._base.messages import missing_package
from ..._waiting.threads import NativeThread
from .. import _log
from .folder import Found, scan

try:
    import watchfiles
except ImportError as _error:
    raise missing_package(_error, "hub") from _error

QUIET = 100  # ms without a change, after which the folder is read
LONGEST = 400  # ms from the first change
ANYWAY = 5000  # ms; the folder is read without a change too, for network file systems


class Watching:
    """Reads a folder of models whenever it changes.

    The system tells the changes of a folder, not of its path. While there is no folder, its parent
    is watched; a new folder is watched in its turn.

    Args:
        root: the folder.
        apply: called with its contents, in the thread of the caller and then in its own thread.
            Returns False to end.

    Raises:
        OSError: the folder cannot be read.
    """

    def __init__(self, root: Path, apply: Callable[[dict[str, Found]], bool]) -> None:
        self._root = root.absolute()
        self._apply = apply
        self._stopped = False
        self._place = _place_of(self._root)
        self._is_new = False  # it may have changed before the system told its changes
        apply(scan(root))
        self._thread = NativeThread(self._watch, "service-streamer-watch")
        self._thread.start()

    def is_set(self) -> bool:
        """Return True if watchfiles should end. It calls this while it watches already."""
        is_new, self._is_new = self._is_new, False
        return self._stopped or (is_new and not self._read())

    def stop(self) -> None:
        """End the thread, and wait for that."""
        self._stopped = True
        if not self._thread.is_current():
            self._thread.join()

    def _watch(self) -> None:
        polling = False
        while not self._stopped:
            self._place = _place_of(self._root)
            try:
                self._read_on_changes(polling)
            except Exception as error:  # such as the limit of inotify
                if self._place != _place_of(self._root):
                    continue  # it was removed just now
                _log.not_watched(self._root, error)
                if polling:
                    return
                polling = True

    def _read_on_changes(self, polling: bool) -> None:
        """Read the folder until another one is in its place."""
        self._is_new = True
        changes = watchfiles.watch(
            self._place.path,
            watch_filter=None,
            debounce=LONGEST,
            step=QUIET,
            rust_timeout=ANYWAY,
            yield_on_timeout=True,
            stop_event=self,
            raise_interrupt=False,
            force_polling=polling or None,
            recursive=self._place.path == self._root,
            ignore_permission_denied=True,
        )
        for _ in changes:
            if not self._read():
                return

    def _read(self) -> bool:
        """Read the folder if there is one. Return False if it should be watched anew, or never."""
        if self._place.path == self._root:
            try:
                self._stopped = not self._apply(scan(self._root)) or self._stopped
            except Exception as error:  # the folder cannot be read
                _log.not_read(self._root, error)
        return not self._stopped and self._place == _place_of(self._root)


class _Place(NamedTuple):
    """A folder that is watched."""

    path: Path
    identity: tuple[int, int] | None
    """a value that differs for another folder at this path"""


def _place_of(path: Path) -> _Place:
    """Return the folder; if it does not exist, the nearest parent that does."""
    for each in (path, *path.parents):
        with contextlib.suppress(OSError):
            about = each.stat()
            if stat.S_ISDIR(about.st_mode):
                return _Place(each, (about.st_dev, about.st_ino))
    return _Place(path, None)
