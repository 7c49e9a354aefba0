"""Starting worker processes: spawn, fork and forkserver.

All three end up in `worker_main`. What ``multiprocessing`` would do in its own way is done here:

- spawned workers have their environment before their first import of anything of the user's;
- ``multiprocessing`` does not know them: its forked children would end their parent's workers when
  they exit, and it waits at exit for what it knows;
- they start from one thread that lives as long as they do: PDEATHSIG is sent when that thread ends.
"""

from __future__ import annotations

import _socket
import dataclasses
import os
import pickle
import signal
import sys
from collections.abc import Callable
from typing import Any

from .. import _devices
from .._model import Model
from .._waiting.threads import original
from . import descriptors
from .init_failure import UNGUARDED_MAIN
from .process import Process

START_METHODS = ("spawn", "fork", "forkserver")

_FD = 3  # the number of a spawned worker's socket


@dataclasses.dataclass(frozen=True)
class Version:
    """A model as it is sent to workers."""

    model: Model
    packed: bytes
    """pickled; empty where workers are forked"""


@dataclasses.dataclass(frozen=True)
class Started:
    """A worker that is on its way."""

    socket: int
    """our end of the connection"""
    process: Process
    setup: bytes
    """what it waits for"""


class Starter:
    """Starts the workers of one streamer. To be used by one thread, which must outlive them."""

    def __init__(
        self,
        method: str,
        devices: tuple[_devices.Device, ...] | None,
        *,
        budget: float | None,
        output_batch: bool,
        inline: bool = False,
    ) -> None:
        self._start = {"spawn": _spawn, "fork": _fork, "forkserver": _from_forkserver}[method]
        self._devices = devices
        self._budget = budget
        self._output_batch = output_batch
        self._inline = inline
        # Imported now: while no fork may happen, nobody should have to wait for an import.
        from . import forkserver, worker_main  # noqa: F401

    def __call__(self, index: int, worker_num: int, batch_size: int, version: Version) -> Started:
        """Start the worker of one place.

        Raises:
            OSError: no process, no descriptor, no memory.
        """
        from . import worker_main

        device = _devices.device_of(self._devices, index)
        job = worker_main.Job(
            name=f"service-streamer-worker-{index}",
            owner=os.getpid(),
            device=device,
            batch_size=batch_size,
            budget=self._budget,
            output_batch=self._output_batch,
            inline=self._inline,
        )
        variables = _devices.environment(device, worker_num)
        with descriptors.no_fork:
            ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
            descriptors.close_in_children(ours.fileno())
            try:
                process = self._start(theirs.fileno(), job, version, variables)
                setup = self._setup(job, version)
            except BaseException:
                descriptors.close(ours.detach())
                raise
            finally:
                theirs.close()
            return Started(ours.detach(), process, setup)  # still closed in children

    def _setup(self, job: Any, version: Version) -> bytes:
        if self._start is _fork:
            return b""  # it has all of that
        return pickle.dumps((_preparation(job.name), job, version.packed))


def check_not_importing_main() -> None:
    """Refuse to start workers from the main module of a worker.

    Raises:
        RuntimeError: saying how a main module can be imported safely.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is not None and getattr(process.current_process(), "_inheriting", False):
        raise RuntimeError(UNGUARDED_MAIN)


def _spawn(fd: int, job: Any, version: Version, variables: dict[str, str]) -> Process:
    from multiprocessing import spawn
    from subprocess import _args_from_interpreter_flags as flags  # type: ignore[attr-defined]

    package = os.path.abspath(os.path.join(__file__, *[os.pardir] * 3))
    program = f"import sys; sys.path.append({package!r}); "
    program += "from service_streamer._processes.worker_main import main; "
    program += f"main({_FD}, {job.owner}, {job.output_batch}, {job.inline})"
    executable = _executable(os.fsdecode(spawn.get_executable() or ""))
    own = None
    if fd == _FD:
        fd = own = os.dup(fd)  # or it would stay as it is: closed by the start
    try:
        pid = original("os", "posix_spawn")(
            executable,
            [executable, *flags(), "-c", program],
            {**os.environ, **variables},
            file_actions=[*_closing_inheritable(), (os.POSIX_SPAWN_DUP2, fd, _FD)],
            setsigmask=(signal.SIGINT,),  # until the worker ignores it
        )
    finally:
        if own is not None:
            os.close(own)
    return Process(pid)


def _executable(known: str) -> str:
    """The interpreter to start; ``sys.executable`` is none where Python is embedded (uwsgi)."""
    if "python" not in os.path.basename(known).lower():
        for name in (f"python{sys.version_info.major}.{sys.version_info.minor}", "python3"):
            candidate = os.path.join(sys.prefix, "bin", name)
            if os.access(candidate, os.X_OK):
                return candidate
    return known


def _closing_inheritable() -> list[tuple[int, int]]:
    """Close in the new process what others of this one may inherit: a web server's socket, say."""
    actions = []
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            if fd > 2 and os.get_inheritable(fd):
                actions.append((os.POSIX_SPAWN_CLOSE, fd))
        except OSError:
            pass  # closed by now
    return actions


def _fork(fd: int, job: Any, version: Version, variables: dict[str, str]) -> Process:
    from . import worker_main

    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    pid = original("os", "fork")()
    if pid == 0:
        code = 1
        try:
            code = worker_main.run_forked(fd, job.owner, job, version.model, variables)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return Process(pid)


def _from_forkserver(fd: int, job: Any, version: Version, variables: dict[str, str]) -> Process:
    from multiprocessing import forkserver

    from . import worker_main
    from .forkserver import connect_to_new_process

    status, pipe = connect_to_new_process(fd)
    try:
        with open(pipe, "wb", closefd=False) as file:
            pickle.dump({}, file)  # what it prepares by itself: nothing
            start = worker_main.ForkserverStart(job.output_batch, job.inline, variables)
            pickle.dump(start, file)
        pid = int(forkserver.read_signed(status))
    except BaseException:  # the forkserver has ended
        os.close(status)
        os.close(pipe)
        raise
    return Process(pid, status, pipe)


def _preparation(name: str) -> dict[str, Any]:
    """What ``multiprocessing`` sends ahead: sys.path, the main module, the folder…"""
    from multiprocessing import spawn

    data = spawn.get_preparation_data(name)
    data["authkey"] = bytes(data["authkey"])
    return data


Start = Callable[[int, int, int, Version], Started]
