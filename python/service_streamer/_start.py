"""Starting worker processes: spawn, fork and forkserver.

All three end up in `_worker_main`. What ``multiprocessing`` would do in its own way is done here:

- spawned workers have their environment before their first import of anything of the user's;
- ``multiprocessing`` does not know them: its forked children would end their parent's workers when
  they exit, and it waits at exit for what it knows;
- they start from one thread that lives as long as they do: PDEATHSIG is sent when that thread ends.
"""

from __future__ import annotations

import _socket
import contextlib
import dataclasses
import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from . import _devices, _lifecycle
from ._model import Model
from ._threads import original

START_METHODS = ("spawn", "fork", "forkserver")

_FD = 3  # the number of a spawned worker's socket


class Process:
    """A process that this one has started, and does not confuse with another of the same number."""

    def __init__(self, pid: int, status: int | None = None, life: int | None = None) -> None:
        self.pid = pid
        self.exit_code: int | None = None
        """-n: by signal n; None: it still runs, or somebody else has asked the system for it"""
        self.ended = False
        self._status = status  # where a forkserver, whose child it is, tells of its end
        # `life`: by its end a forkserver's child knows that we have ended
        self._descriptors = [fd for fd in (status, life) if fd is not None]
        try:
            self._handle = os.pidfd_open(pid)
        except OSError:  # no descriptor left; Linux before 5.3
            os.kill(pid, signal.SIGKILL)
            self._collect()
            for fd in self._descriptors:
                os.close(fd)
            raise
        self._descriptors.append(self._handle)
        for fd in self._descriptors:
            _lifecycle.close_in_children(fd)

    def kill(self) -> None:
        """End it at once, whatever it does."""
        if not self.ended:
            with contextlib.suppress(OSError):  # it has ended
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def wait(self, timeout: float) -> bool:
        """Wait for its end, and let it go from the system's table; False: time is over first."""
        if self.ended:
            return True
        poll = original("select", "poll")()
        poll.register(self._handle if self._status is None else self._status, select.POLLIN)
        if not poll.poll(timeout * 1000):
            return False
        self.exit_code = self._collect()
        self.ended = True
        for fd in self._descriptors:
            _lifecycle.close(fd)
        return True

    def describe(self) -> str:
        """Say how it ended."""
        if self.exit_code is None:
            return "ended"
        if self.exit_code >= 0:
            return f"exited with code {self.exit_code}"
        try:
            return f"was killed by {signal.Signals(-self.exit_code).name}"
        except ValueError:
            return f"was killed by signal {-self.exit_code}"

    def _collect(self) -> int | None:
        if self._status is not None:
            from multiprocessing import forkserver

            try:
                return int(forkserver.read_signed(self._status))
            except (OSError, EOFError):
                return None  # the forkserver has ended, too
        try:
            _, status = original("os", "waitpid")(self.pid, 0)
        except ChildProcessError:
            return None  # an application that waits for all its children was faster
        return os.waitstatus_to_exitcode(status)


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
        from . import _forkserver, _worker_main  # noqa: F401

    def __call__(self, index: int, worker_num: int, batch_size: int, version: Version) -> Started:
        """Start the worker of one place.

        Raises:
            OSError: no process, no descriptor, no memory.
        """
        from . import _worker_main

        device = _devices.device_of(self._devices, index)
        job = _worker_main.Job(
            name=f"service-streamer-worker-{index}",
            owner=os.getpid(),
            device=device,
            batch_size=batch_size,
            budget=self._budget,
            output_batch=self._output_batch,
            inline=self._inline,
        )
        variables = _devices.environment(device, worker_num)
        with _lifecycle.no_fork:
            ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
            _lifecycle.close_in_children(ours.fileno())
            try:
                process = self._start(theirs.fileno(), job, version, variables)
                setup = self._setup(job, version)
            except BaseException:
                _lifecycle.close(ours.detach())
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


UNGUARDED_MAIN = """\
A worker process imports the main module, and this one makes a Streamer as soon as it is imported. \
Only the program itself may do that:

    if __name__ == "__main__":
        streamer = Streamer(...)
"""


def _spawn(fd: int, job: Any, version: Version, variables: dict[str, str]) -> Process:
    from multiprocessing import spawn
    from subprocess import _args_from_interpreter_flags as flags  # type: ignore[attr-defined]

    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    program = f"import sys; sys.path.append({package!r}); "
    program += "from service_streamer._worker_main import main; "
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
    from . import _worker_main

    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    pid = original("os", "fork")()
    if pid == 0:
        code = 1
        try:
            code = _worker_main.run_forked(fd, job.owner, job, version.model, variables)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return Process(pid)


def _from_forkserver(fd: int, job: Any, version: Version, variables: dict[str, str]) -> Process:
    from multiprocessing import forkserver

    from . import _forkserver, _worker_main

    status, pipe = _forkserver.connect_to_new_process(fd)
    try:
        with open(pipe, "wb", closefd=False) as file:
            pickle.dump({}, file)  # what it prepares by itself: nothing
            start = _worker_main.ForkserverStart(job.output_batch, job.inline, variables)
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


def wait_for_all(processes: list[Process], deadline: float) -> list[Process]:
    """Wait until they have ended; return those that have not by the deadline."""
    return [each for each in processes if not each.wait(max(0.0, deadline - time.monotonic()))]
