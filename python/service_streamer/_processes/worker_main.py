"""The code that runs in a worker process.

::

    started by start.py ── set PDEATHSIG ── receive the setup ── import the user's main module,
    unpickle the model ── init_model, warm-up ── send "ready" ── run batches ── end of file: exit

Batches are run as in a worker thread (`run_batches`, `serving.serve`). To user code the process
looks like one of ``multiprocessing``: `Worker` runs in ``BaseProcess._bootstrap``, so profilers,
tracebacks, ``current_process()`` and ``parent_process()`` work as usual.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from multiprocessing import forkserver, process, spawn
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, NoReturn

from .. import _core
from .._engine import lifecycle
from .._models.model import Model, makes_steps
from .._models.serving import is_logged, serve
from .._placement import cores as _cores
from .._placement.places import Place
from . import unguarded
from .init_failure import InitFailure

if TYPE_CHECKING:
    from .._streams.hub import Address


@dataclasses.dataclass(frozen=True)
class Job:
    """The settings of a worker, without its model."""

    name: str
    owner: int
    """the pid of the process that has the engine"""
    device: int | str | None
    place: Place
    batch_size: int
    budget: float | None
    """the time budget of `serving.isolate`; None: errors are not isolated"""
    output_batch: bool
    inline: bool = False
    """outputs may go to other machines, so shared memory is not used"""
    relay: Address | None = None
    """the address for pieces of streams that go to other machines"""


class Worker(BaseProcess):
    """This process as a process of ``multiprocessing``."""

    _start_method = None

    def __init__(self, link: _core.WorkerLink, job: Job, model: Model) -> None:
        super().__init__(name=job.name)
        self._parent_pid = job.owner
        self._link = link
        self._job = job
        self._model = model

    def run(self) -> None:
        """Load the model and run batches until the engine closes the connection."""
        job, link = self._job, self._link
        try:
            if job.relay is not None:
                from .._streams import remote  # imported only where it is needed

                remote.use_relay(job.relay)
            with _reporting(link):
                job.place.limit_torch()
                predict = self._model.load(job.device, job.batch_size)
            name = self._model.name
            del self._model  # frees init arguments and warm-up items
            link.send_ready(_about(predict, job.place))
            if makes_steps(predict):
                from .._models.steps.worker_loop import WorkerLoop  # only needed here

                WorkerLoop(link, predict, job.batch_size, job.budget is not None, name).run()
                return
            while (unfinished := link.run_batches(predict, is_logged)) is not None:
                serve(*unfinished, predict, job.budget, name)
                del unfinished  # frees its items before the next wait
        finally:
            lifecycle.end_worker()


def main(fd: int, parent: int, output_batch: bool, inline: bool) -> NoReturn:
    """Run a spawned worker: the program of the new interpreter."""
    sys.exit(_run(fd, parent, output_batch, inline, None))


def run_forked(fd: int, parent: int, job: Job, model: Model, variables: Mapping[str, str]) -> int:
    """Run a forked worker and return its exit code."""
    threading.main_thread().name = "MainThread"  # not the name of the forking thread
    _reset_signal_handlers()
    _forget_imports()
    os.environ.update(variables)
    job.place.enter()
    link = _open(fd, parent, job.output_batch, job.inline)
    if link is None or link.receive_setup() is None:
        return 0
    return _bootstrap(link, job, model, None)


class ForkserverStart:
    """The object that a forkserver's child unpickles and runs, in place of a process.

    With a process of ``multiprocessing``, the child would import the user's main module before the
    environment is set.
    """

    def __init__(self, output_batch: bool, inline: bool, variables: Mapping[str, str]) -> None:
        self._output_batch = output_batch
        self._inline = inline
        self._variables = dict(variables)

    def _bootstrap(self, parent_sentinel: int) -> int:
        os.environ.update(self._variables)
        server: Any = forkserver._forkserver
        (fd,) = server._inherited_fds
        # An open copy would keep the forkserver, and so this child, alive after the owner's death.
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = server._forkserver_address = None
        return _run(fd, os.getppid(), self._output_batch, self._inline, parent_sentinel)


def _run(fd: int, parent: int, output_batch: bool, inline: bool, sentinel: int | None) -> int:
    link = _open(fd, parent, output_batch, inline)
    setup = None if link is None else link.receive_setup()
    if link is None or setup is None:
        return 0  # the owner has ended
    this: Any = process.current_process()
    this._inheriting = unguarded.in_worker = True  # checked by unguarded.check()
    try:
        with _reporting(link):
            preparation, job, packed = pickle.loads(setup)
            job.place.enter()  # before modules of the user start threads
            spawn.prepare(preparation)
            model = pickle.loads(packed)
    except SystemExit:
        return 1
    finally:
        del this._inheriting
    del setup, packed, preparation
    return _bootstrap(link, job, model, sentinel)


def _open(fd: int, parent: int, output_batch: bool, inline: bool) -> _core.WorkerLink | None:
    # The owner handles Ctrl-C and ends its workers. SIGINT was blocked until here.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if not _core.die_with_parent(parent):
        return None
    return _core.WorkerLink(fd, output_batch, inline)


def _bootstrap(link: _core.WorkerLink, job: Job, model: Model, sentinel: int | None) -> int:
    if sentinel is None:
        with contextlib.suppress(OSError):  # old kernel: parent_process() cannot be joined then
            sentinel = os.pidfd_open(job.owner)
    worker: Any = Worker(link, job, model)
    return int(worker._bootstrap(parent_sentinel=sentinel))


@contextlib.contextmanager
def _reporting(link: _core.WorkerLink) -> Iterator[None]:
    """Report an exception to the engine as a failed load, and exit."""
    try:
        yield
    except BaseException as error:
        trace = error.__traceback__
        below = trace.tb_next if trace is not None else None  # without this frame
        text = "".join(traceback.format_exception(type(error), error, below))
        link.send_init_failed(InitFailure.of(error, text).note)
        raise SystemExit(1) from None


def _about(predict: Any, place: Place) -> str:
    return json.dumps(
        {
            **place.about(),
            "pid": os.getpid(),
            "device": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "threads": os.environ.get("OMP_NUM_THREADS"),
            "cpu_threads": _cores.cpu_threads(predict),
        }
    )


def _forget_imports() -> None:
    """Give up imports that threads of the parent have begun: they would never end."""
    for module in list(sys.modules.values()):
        with contextlib.suppress(Exception):  # an object of the user in place of a module
            spec = object.__getattribute__(module, "__dict__").get("__spec__")
            if getattr(spec, "_initializing", False):
                spec._initializing = False


def _reset_signal_handlers() -> None:
    """Remove the signal handlers that a forked child inherits from its parent."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
