"""A worker without memory: its model may raise MemoryError, or the kernel kills it.

Only a group of processes with a limit of its own shows what the kernel does. Where none can be
made (that takes cgroups of version 2, and the right to), a worker that kills itself while it takes
memory stands in for it; the limit of a process, RLIMIT_AS, gives the MemoryError.
"""

import contextlib
import os
import resource
from pathlib import Path

import pytest
from process_models import die, first_time, is_alive
from waits import LONG, eventually

pytestmark = pytest.mark.slow

MB = 2**20
GROUPS = Path("/sys/fs/cgroup")


def take_memory(megabytes):
    return [b"x" * MB for _ in range(megabytes)]


def pid_of(streamer):
    (worker,) = streamer.stats().worker_processes
    return worker.pid


# ----------------------------------------------------------------- the process' own


def limited(batch):
    """Has 256 MB more than it uses; takes as many as the items say."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 256 * MB, hard))
    try:
        return [len(take_memory(item)) for item in batch]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def test_an_item_too_large_for_the_memory_fails_alone_and_the_worker_goes_on(
    process_streamers, process_gate
):
    process_gate._predict = limited
    streamer = process_streamers(process_gate, batch_size=4)
    held = streamer.submit([0])
    pid = process_gate.wait_entered()
    futures = [streamer.submit([size]) for size in (1, 2, 1000, 3)]
    process_gate.open()
    held.result(LONG)
    errors = [future.exception(LONG) for future in futures]
    assert [type(error) for error in errors] == [type(None), type(None), MemoryError, type(None)]
    assert [futures[i].result() for i in (0, 1, 3)] == [[1], [2], [3]]
    assert process_gate.batches[:2] == [[0], [1, 2, 1000, 3]]
    assert pid_of(streamer) == pid


# ------------------------------------------------------------------ killed by the kernel


class Group:
    """A group of processes with a limit of memory."""

    def __init__(self, folder, limit):
        self._folder = folder
        folder.mkdir()
        (folder / "memory.max").write_text(str(limit))
        with contextlib.suppress(FileNotFoundError):  # a kernel without swap
            (folder / "memory.swap.max").write_text("0")

    def enter(self):
        (self._folder / "cgroup.procs").write_text(str(os.getpid()))

    def kills(self):
        events = (self._folder / "memory.events").read_text().split()
        return int(events[events.index("oom_kill") + 1])

    def remove(self):
        self._folder.rmdir()


@pytest.fixture
def group():
    """A `Group` beside our own, or within it."""
    own = Path("/proc/self/cgroup").read_text().splitlines()[-1].removeprefix("0::/")
    made = None
    for parent in (GROUPS / own, (GROUPS / own).parent):
        with contextlib.suppress(OSError):
            if "memory" in (parent / "cgroup.subtree_control").read_text().split():
                made = Group(parent / f"service-streamer-{os.getpid()}", 256 * MB)
                break
    if made is None:
        pytest.skip("no group of processes with a limit of memory can be made here")
    yield made
    eventually(lambda: not (made._folder / "cgroup.procs").read_text())
    made.remove()


class Killed:
    """Takes memory until it is killed, the first time; sums arrays."""

    def __init__(self, folder, group=None):
        self._folder = folder
        self._group = group

    def __call__(self, batch):
        if first_time(self._folder):
            if self._group is None:
                taken = take_memory(64)
                die("SIGKILL")
            else:
                self._group.enter()
                taken = take_memory(1000)
            del taken
        return [float(array.sum()) for array in batch]


def check_killed(streamer):
    """One batch kills the worker; another one answers it, and memory comes back."""
    numpy = pytest.importorskip("numpy")
    streamer.wait_ready(LONG)
    pid = pid_of(streamer)
    arrays = [numpy.full(1_000_000, i, dtype=numpy.float32) for i in range(4)]
    assert streamer.predict(arrays, timeout=LONG) == [i * 1e6 for i in range(4)]
    assert pid_of(streamer) != pid
    eventually(lambda: not is_alive(pid))


def test_a_worker_killed_while_it_takes_memory_is_replaced_and_its_batch_run_again(
    process_streamers, tmp_path
):
    """The stand-in: SIGKILL, as from the kernel, in the midst of taking memory."""
    check_killed(process_streamers(Killed(tmp_path)))


def test_a_worker_killed_by_the_kernel_for_its_memory_is_replaced_and_its_batch_run_again(
    group, process_streamers, tmp_path
):
    check_killed(process_streamers(Killed(tmp_path, group)))
    assert group.kills() == 1
