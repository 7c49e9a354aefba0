"""Starting worker processes: spawn, fork and forkserver.

All three run `worker_main`. This module replaces ``multiprocessing.Process`` for three reasons:

- The environment of a spawned worker must be set before it imports user code.
- ``multiprocessing`` must not know the workers: at exit it waits for its processes, and a forked
  child would end the processes of its parent.
- One thread must start all workers and outlive them: PDEATHSIG is sent when that thread ends.
"""

from __future__ import annotations

import _socket
import dataclasses
import os
import pickle
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args

from .._base.types import StartMethod
from .._engine.pickling import main_has_no_file
from .._models.model import Model
from .._placement import devices as _devices
from .._placement import machine
from .._placement.places import Placement
from .._waiting.threads import original
from . import descriptors, own_package
from .process import Process

if TYPE_CHECKING:
    from .._models.code import FolderCode
    from .._streams.hub import Address

START_METHODS = get_args(StartMethod)

_FD = 3  # the descriptor of the socket in a spawned worker


@dataclasses.dataclass(frozen=True)
class ModelVersion:
    """A model in the form in which it is sent to workers. Compared by identity."""

    model: Model
    packed: bytes
    """the pickled model; empty for forked workers"""


@dataclasses.dataclass(frozen=True)
class Started:
    """A worker process that was just started."""

    socket: int
    """the owner's end of the connection"""
    process: Process
    setup: bytes
    """the message that the worker waits for"""
    device: _devices.Device | None = None


class Starter:
    """Starts the workers of one streamer. Used by one thread, which must outlive them."""

    def __init__(
        self,
        method: str,
        devices: tuple[_devices.Device, ...] | None,
        placement: Placement,
        *,
        budget: float | None,
        output_batch: bool,
        inline: bool = False,
        relay: Address | None = None,
    ) -> None:
        self._start = {"spawn": _spawn, "fork": _fork, "forkserver": _from_forkserver}[method]
        self._devices = devices
        self._placement = placement
        self._budget = budget
        self._output_batch = output_batch
        self._inline = inline
        self._relay = relay
        # Imported now, because __call__ blocks forks and should not import while it does.
        from . import forkserver, worker_main  # noqa: F401

    def __call__(
        self, index: int, worker_num: int, batch_size: int, version: ModelVersion
    ) -> Started:
        """Start the worker of slot `index`.

        Raises:
            OSError: no process, descriptor or memory is available.
        """
        from . import worker_main

        device = _devices.device_of(self._devices, index)
        place = self._placement.of(index, worker_num)
        job = worker_main.Job(
            name=f"service-streamer-worker-{index}",
            owner=os.getpid(),
            device=device,
            place=place,
            batch_size=batch_size,
            budget=self._budget,
            output_batch=self._output_batch,
            inline=self._inline,
            relay=self._relay,
        )
        variables = _devices.environment(device, place)
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
            # the descriptor stays registered to be closed in children
            return Started(ours.detach(), process, setup, device)

    def _setup(self, job: Any, version: ModelVersion) -> bytes:
        if self._start is _fork:
            return b""  # the forked child has the objects themselves
        return pickle.dumps((_preparation(job.name, version.model.code), job, version.packed))


def _spawn(fd: int, job: Any, version: ModelVersion, variables: dict[str, str]) -> Process:
    from subprocess import _args_from_interpreter_flags as flags  # type: ignore[attr-defined]

    environment = {**os.environ, **variables}
    arguments = flags()
    code = version.model.code
    if code is not None and code.python:
        executable = code.python
        program = own_package.PROGRAM
        arguments = [each for each in arguments if each != "-P"]  # unknown to Python 3.10
        for name in ("PYTHONPATH", "PYTHONHOME"):  # for the Python of this process
            environment.pop(name, None)
    else:
        executable = interpreter()
        package = os.path.abspath(os.path.join(__file__, *[os.pardir] * 3))
        program = f"import sys; sys.path.append({package!r})\n"
    program += "from service_streamer._processes.worker_main import main; "
    closing, beyond = closing_inheritable()
    if beyond:
        program += f"import os; [os.closerange(fd, fd + 1) for fd in {beyond}]; "
    program += f"main({_FD}, {job.owner}, {job.output_batch}, {job.inline})"
    own = None
    if fd == _FD:
        fd = own = os.dup(fd)  # dup2 to the same number would keep close-on-exec set
    try:
        pid = original("os", "posix_spawn")(
            executable,
            [executable, *arguments, "-c", program],
            environment,
            file_actions=[*closing, (os.POSIX_SPAWN_DUP2, fd, _FD)],
            setsigmask=(signal.SIGINT,),  # blocked until the worker ignores it
        )
    finally:
        if own is not None:
            os.close(own)
    return Process(pid)


def _executable(known: str) -> str:
    """Return the interpreter to start. If Python is embedded (uwsgi), `known` is not one."""
    if "python" not in os.path.basename(known).lower():
        for name in (f"python{sys.version_info.major}.{sys.version_info.minor}", "python3"):
            candidate = os.path.join(sys.prefix, "bin", name)
            if os.access(candidate, os.X_OK):
                return candidate
    return known


def interpreter() -> str:
    """Return the interpreter of this process."""
    from multiprocessing import spawn

    return _executable(os.fsdecode(spawn.get_executable() or ""))


def closing_inheritable() -> tuple[list[tuple[int, int]], list[int]]:
    """Return what closes inheritable descriptors, for instance a web server's socket.

    Returns:
        Actions, and the descriptors that an action cannot close: they are above the limit.
    """
    import resource  # only needed here

    actions, beyond = [], []
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    for name in os.listdir(machine.own_proc("fd")):
        fd = int(name)
        try:
            if fd > 2 and os.get_inheritable(fd):
                if 0 <= limit <= fd:
                    beyond.append(fd)
                else:
                    actions.append((os.POSIX_SPAWN_CLOSE, fd))
        except OSError:
            pass  # another thread has closed it
    return actions, beyond


def _fork(fd: int, job: Any, version: ModelVersion, variables: dict[str, str]) -> Process:
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


def _from_forkserver(
    fd: int, job: Any, version: ModelVersion, variables: dict[str, str]
) -> Process:
    from multiprocessing import forkserver

    from . import worker_main
    from .forkserver import connect_to_new_process

    status, pipe = connect_to_new_process(fd)
    try:
        with open(pipe, "wb", closefd=False) as file:
            pickle.dump({}, file)  # the preparation data of multiprocessing: none
            start = worker_main.ForkserverStart(job.output_batch, job.inline, variables)
            pickle.dump(start, file)
        pid = int(forkserver.read_signed(status))
    except BaseException:  # the forkserver has ended
        os.close(status)
        os.close(pipe)
        raise
    return Process(pid, status, pipe)


def _preparation(name: str, code: FolderCode | None) -> dict[str, Any]:
    """Return the preparation data of ``multiprocessing``: sys.path, main module, folder…

    The main module is not for the code of a folder, and this path not for another interpreter.
    """
    from multiprocessing import spawn

    machine.working_folder()  # the data has it
    data = spawn.get_preparation_data(name)
    data["authkey"] = bytes(data["authkey"])
    if main_has_no_file():
        data.pop("init_main_from_path", None)  # "<stdin>"
    if code is not None:
        for field in (
            "init_main_from_path",
            "init_main_from_name",
            *["sys_path"] * bool(code.python),
        ):
            data.pop(field, None)
    return data


Start = Callable[[int, int, int, ModelVersion], Started]
