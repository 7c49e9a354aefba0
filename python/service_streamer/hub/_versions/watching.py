"""The thread that watches a folder of models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..._messages import missing_package
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

    Args:
        root: the folder.
        apply: called with its contents, in the thread of the caller and then in its own thread.
            Returns False to end.

    Raises:
        OSError: the folder cannot be read.
    """

    def __init__(self, root: Path, apply: Callable[[dict[str, Found]], bool]) -> None:
        self._root = root
        self._apply = apply
        self._stopped = False
        apply(scan(root))
        self._thread = NativeThread(self._watch, "service-streamer-watch")
        self._thread.start()

    def is_set(self) -> bool:
        """Return True if it should end. Called by watchfiles."""
        return self._stopped

    def stop(self) -> None:
        """End the thread, and wait for that."""
        self._stopped = True
        if not self._thread.is_current():
            self._thread.join()

    def _watch(self) -> None:
        for polling in (False, True):
            try:
                self._read_on_changes(polling)
            except Exception as error:  # such as the limit of inotify
                _log.not_watched(self._root, error)
            else:
                return

    def _read_on_changes(self, polling: bool) -> None:
        changes = watchfiles.watch(
            self._root,
            watch_filter=None,
            debounce=LONGEST,
            step=QUIET,
            rust_timeout=ANYWAY,
            yield_on_timeout=True,
            stop_event=self,
            raise_interrupt=False,
            force_polling=polling or None,
            ignore_permission_denied=True,
        )
        for _ in changes:
            try:
                if not self._apply(scan(self._root)):
                    break
            except Exception as error:  # the folder cannot be read
                _log.not_read(self._root, error)
