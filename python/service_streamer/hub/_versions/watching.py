"""The thread that watches a folder of models."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from ..._base.messages import describe
from ..._waiting.threads import Condition, NativeThread
from .. import _log
from .changes import ITSELF, MOUNTS, MOVED_TO, Changes
from .folder import SETTLED, Found, scan

QUIET = 0.1  # s without a change, after which the folder is read
LONGEST = 0.4  # s from the first change
LOOK = 10.0  # s between two looks at what no change is reported of
LOOK_OVER_NETWORK = 5.0  # s

# Changes of these come from this machine. Others, such as NFS, do not report those of other ones.
_OWN = {
    *("aufs", "bcachefs", "btrfs", "erofs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay"),
    *("ramfs", "reiserfs", "squashfs", "tmpfs", "xfs", "zfs"),
}

Apply = Callable[[Mapping[str, Found], Collection[str]], float | None]


class Watching:
    """Reads the folders of models that have changed.

    The kernel reports the changes of a folder, not of its path. While there is no folder, its
    parent is watched; a new folder is watched in its turn. The thread sleeps until there is a
    change, unless something will be different after a time:

    - A version that is being copied is looked at until its files stay the same.
    - A version that could not be loaded is tried again.
    - What the kernel does not report is looked at: file systems of other machines, folders beyond
      the limits of inotify, and models whose code cannot be imported.

    Args:
        root: the folder.
        apply: called with all that it has, and the names of the models that have changed, in the
            thread of the caller and then in its own thread. Returns the monotonic time at which it
            wants to be called again. None: at the next change.

    Raises:
        OSError: the folder cannot be read.
    """

    def __init__(self, root: Path, apply: Apply) -> None:
        self.root = root.absolute()
        """the folder"""
        self._apply = apply
        self._stopped = False
        self._changes = Changes()
        self._failure: OSError | None = None
        self._found: dict[str, Found] | None = None
        self._later: dict[str, float] = {}
        """the models to look at again, and when"""
        self._next_look: float | None = None
        """when all of them are looked at"""
        self._retry_at: float | None = None
        self._asked: set[Path] = set()
        """the versions of `look`"""
        self._not_read: dict[Path, str] = {}
        """those of them that could not be read, and why"""
        self._applied = Condition()
        try:
            self._begin()
            self._look(None, ())
        except BaseException:
            self._changes.close()
            raise
        self._thread = NativeThread(self._watch, "service-streamer-watch")
        self._thread.start()

    def wake(self) -> None:
        """Call `apply` soon, because it may want to be called at another time now."""
        self._changes.wake()

    def look(self, version: Path) -> None:
        """Read the folder of a model that has a new version. Block until that is applied.

        Raises:
            OSError: the folder cannot be read now.
        """
        self._asked.add(version)
        self._changes.wake()
        self._applied.wait_for(lambda: self._stopped or version not in self._asked, None)
        if (why := self._not_read.pop(version, None)) is not None:
            raise OSError(f"{version} is published, but {self.root} cannot be read: {why}")

    def stop(self) -> None:
        """End the thread soon. Does not block."""
        self._stopped = True
        self._changes.wake()
        self._applied.notify()

    def join(self) -> None:
        """Block until the thread has ended."""
        if not self._thread.is_current():
            self._thread.join()

    def _watch(self) -> None:
        while True:
            names, moved, is_elsewhere = self._wait()
            if self._stopped:
                self._changes.close()
                return
            asked = self._asked.copy()
            moved.update(map(str, asked))
            why: str | None = None
            try:
                if is_elsewhere or self._place != _place_of(self.root):
                    self._begin()
                    names = None
                    if self._place.path != self.root:
                        _log.not_read(self.root, FileNotFoundError("it was removed"))
                if self._place.path != self.root:
                    why = "it was removed"
                    self._forget_times(self._time_of_look())
                else:
                    if names is not None:
                        names |= {each.parent.name for each in asked}
                    self._look(names, moved)
            except Exception as error:  # the folder cannot be read
                _log.not_read(self.root, error)
                why = describe(error)
                self._forget_times(time.monotonic() + LOOK)
            if why is not None:
                self._not_read.update(dict.fromkeys(asked, why))
            self._asked -= asked
            self._applied.notify()

    def _forget_times(self, next_look: float | None) -> None:
        """Wait until all models are looked at. A time that is over would end each wait."""
        self._later.clear()
        self._retry_at = None
        self._next_look = next_look

    def _begin(self) -> None:
        """Watch the folder that has the path now, and notice if another one gets it."""
        while True:
            self._changes.restart()
            self._place = _place_of(self.root)
            self._mounts = _mounts_of(self.root)
            self._changes.add(str(self._place.path))
            for each in (self.root, *self.root.parents):
                if each.is_symlink():  # which can be replaced
                    self._changes.add(str(each.parent))
            for each in self._place.path.resolve().parents:
                self._changes.add(str(each), ITSELF)
            if self._place == _place_of(self.root) and self._mounts == _mounts_of(self.root):
                return

    def _look(self, names: Collection[str] | None, moved: Collection[str]) -> None:
        """Read the folders of some models, or of all, and apply what has changed."""
        now = time.monotonic()
        before = self._found or {}
        found = scan(self.root, self._found, names, moved, self._changes.add)
        for name in found.keys() | before.keys() if names is None else names:
            each = found.get(name)
            self._later.pop(name, None)
            if each is not None and each.changing:
                self._later[name] = SETTLED + min(each.changed[number] for number in each.changing)
            elif each is not None and each.may_heal:
                self._later[name] = now + LOOK
        failure = self._changes.failure
        if failure is not None and self._failure is None:
            _log.not_watched(self.root, failure, LOOK)
        if names is None or failure is not self._failure:
            self._next_look = self._time_of_look()
        self._failure = failure
        known = found.keys() if names is None else found.keys() & names
        changed = [name for name in known if found[name] != before.get(name)]
        self._retry_at = self._apply(found, changed)
        self._found = found

    def _time_of_look(self) -> float | None:
        now = time.monotonic()
        if self._changes.failure is not None:
            return now + LOOK
        return None if reports_changes(self.root.resolve()) else now + LOOK_OVER_NETWORK

    def _wait(self) -> tuple[set[str] | None, set[str], bool]:
        """Block until there is something to do.

        Returns:
            The names of the models to look at (None means all), the paths that were moved to the
            folder, and True if the folder itself or a parent was moved or removed, so that its
            changes are not reported any more.
        """
        times = [self._next_look, self._retry_at, *self._later.values()]
        until = min((each for each in times if each is not None), default=None)
        more = changes = self._changes.wait(until and until - time.monotonic())
        begun = time.monotonic()
        while more and not self._stopped and time.monotonic() - begun < LONGEST:
            more = self._changes.pause(QUIET)
            changes += more
        now = time.monotonic()
        moved = {f"{each.folder}/{each.name}" for each in changes if each.kind & MOVED_TO}
        is_elsewhere = any(
            each.kind & ITSELF and each.folder and self.root not in Path(each.folder).parents
            for each in changes
        )
        is_elsewhere = is_elsewhere or self._mounts != _mounts_of(self.root)
        if self._next_look is not None and now >= self._next_look:
            return None, moved, is_elsewhere
        names = {name for name, at in self._later.items() if now >= at}
        for change in changes:
            folder = Path(change.folder)
            if not change.folder:  # some were lost
                return None, moved, is_elsewhere
            if folder == self.root:
                names.add(change.name)
            elif self.root in folder.parents:
                model, *within = folder.relative_to(self.root).parts
                if within or not change.name.startswith("."):
                    names.add(model)
            path = os.path.join(change.folder, change.name)
            known = (self._found or {}).items()
            names |= {name for name, found in known if found.options_file == path}
        return names, moved, is_elsewhere


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


def reports_changes(root: Path) -> bool:
    """Return False if other machines may change the folder, or a folder that is mounted in it."""
    kinds = {path: kind for path, _, kind in _mounts_of(root)}  # the last one at a path is on top
    inside = {kind for path, kind in kinds.items() if root in path.parents}
    own = [kinds[each] for each in (root, *root.parents) if each in kinds][:1]
    return inside.union(own) <= _OWN


def _mounts_of(root: Path) -> list[tuple[Path, str, str]]:
    """Return the file systems that a folder is on, and those that are mounted in it.

    Returns:
        The path, the number and the kind of each; nothing if they are not known.
    """
    found = []
    root = root.resolve()
    with contextlib.suppress(OSError):
        for line in Path(MOUNTS).read_text("utf-8", "surrogateescape").splitlines():
            place, _, kind = line.partition(" - ")
            number, *_, escaped = place.split()[:5]
            path = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), escaped))
            if path == root or path in root.parents or root in path.parents:
                found.append((path, number, kind.split()[0]))
    return found
