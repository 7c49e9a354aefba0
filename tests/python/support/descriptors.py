"""The descriptors of a process."""

import contextlib
import os


def open_descriptors():
    """Count those of this process."""
    return len(os.listdir("/dev/fd"))


def open_files(pid):
    """What a process has open: for each descriptor a path, or "kind:[inode]"."""
    names = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the list itself
            names.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return names


def is_block(name):
    """Whether an open file is shared memory of ours; that is kept, to be used again."""
    return name.startswith("/memfd:service_streamer")


def use_up():
    """Take all descriptors that this process may have; return them."""
    taken = []
    while True:
        try:
            taken.append(os.dup(0))
        except OSError:
            return taken


def give_back(taken):
    while taken:
        os.close(taken.pop())
