"""The changes in folders, as the kernel reports them by inotify."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import struct
import weakref
from typing import Any, NamedTuple

from ..._waiting.threads import original

ITSELF = 0x400 | 0x800  # IN_DELETE_SELF, IN_MOVE_SELF
MOVED_TO = 0x80
ENTRIES = MOVED_TO | 0x4 | 0x8 | 0x40 | 0x100 | 0x200
"""IN_ATTRIB, IN_CLOSE_WRITE, IN_MOVED_FROM, IN_CREATE, IN_DELETE. Not IN_MODIFY: a file that is
being written is looked at again and again anyway"""
_ONLY_FOLDERS, _ADD_TO_MASK, _WAS_REMOVED = 0x1000000, 0x20000000, 0x8000
_EVENT = struct.Struct("iIII")
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP)


MOUNTS = "/proc/self/mountinfo"


def library() -> ctypes.CDLL:
    """Return the C library of this process."""
    return ctypes.CDLL(None, use_errno=True)


class Change(NamedTuple):
    """One change of a folder."""

    folder: str
    """empty: the kernel has lost some changes"""
    name: str
    """of the entry; empty: the folder itself was moved or removed"""
    kind: int
    """the mask of inotify"""


class Changes:
    """Waits for changes of folders. One thread uses it, and any may call `wake`.

    The wait has no timed wake-ups. `watchfiles` and its like wake up to look for a stop.
    """

    def __init__(self) -> None:
        self.failure: OSError | None = None
        """the reason why the changes of some folders are not reported; None: all of them are"""
        self._fd = -1
        self._folders: dict[int, set[str]] = {}
        """the paths of each watch; inotify has one watch for all paths of a folder"""
        self._libc: Any = library()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Not before the last `wake`, and not at exit.
        weakref.finalize(self, os.close, self._wake).atexit = False
        self._mounts = -1
        with contextlib.suppress(OSError):
            self._mounts = os.open(MOUNTS, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._mounts).atexit = False
        self.restart()

    def restart(self) -> None:
        """Forget all folders, and begin anew."""
        self.close()
        self.failure = None
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:  # the user has too many
            self._fail("fs.inotify.max_user_instances")

    def add(self, folder: str, kinds: int = ITSELF | ENTRIES) -> None:
        """Report the changes of a folder from now on. Does nothing if it is gone."""
        if self._fd < 0:
            return
        kinds |= _ONLY_FOLDERS | _ADD_TO_MASK
        number = self._libc.inotify_add_watch(self._fd, os.fsencode(folder), kinds)
        if number >= 0:
            self._folders.setdefault(number, set()).add(folder)
        elif ctypes.get_errno() not in _GONE:
            self._fail("fs.inotify.max_user_watches")

    def wait(self, timeout: float | None) -> list[Change]:
        """Block until something changes, also a mount, `wake` is called, or the time is over."""
        return self._after(timeout, [self._wake, self._fd, self._mounts])

    def pause(self, seconds: float) -> list[Change]:
        """Block for a time, or until `wake` is called. Return the changes until then."""
        return self._after(seconds, [self._wake])

    def wake(self) -> None:
        """End a wait, the present one or the next."""
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Forget all folders."""
        fd, self._fd = self._fd, -1
        self._folders = {}
        if fd >= 0:
            os.close(fd)

    def _after(self, timeout: float | None, fds: list[int]) -> list[Change]:
        poll = original("select", "poll")()
        for fd in fds:
            if fd >= 0:
                poll.register(fd, select.POLLPRI if fd == self._mounts else select.POLLIN)
        poll.poll(None if timeout is None else 1000 * max(0.0, timeout))
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        found: list[Change] = []
        with contextlib.suppress(BlockingIOError):
            while self._fd >= 0:
                found += self._read(os.read(self._fd, 1 << 16))
        return found

    def _read(self, events: bytes) -> list[Change]:
        found, at = [], 0
        while at < len(events):
            number, kind, _, length = _EVENT.unpack_from(events, at)
            at += _EVENT.size + length
            name = os.fsdecode(events[at - length : at].rstrip(b"\0"))
            folders = sorted(self._folders.get(number, ()))
            if kind & _WAS_REMOVED:
                self._folders.pop(number, None)
            elif number < 0:
                found.append(Change("", name, kind))
            else:
                found += [Change(folder, name, kind) for folder in folders]
            if kind & ITSELF:
                for folder in folders:
                    self._forget(folder)
        return found

    def _forget(self, folder: str) -> None:
        """Forget a folder that was moved, and those in it: their paths are wrong from now on."""
        for number, paths in list(self._folders.items()):
            gone = {each for each in paths if each == folder or each.startswith(f"{folder}/")}
            paths -= gone
            if gone and not paths:
                self._libc.inotify_rm_watch(self._fd, number)
                del self._folders[number]

    def _fail(self, limit: str) -> None:
        code = ctypes.get_errno()
        self.failure = self.failure or OSError(code, f"{os.strerror(code)} (the limit is {limit})")
