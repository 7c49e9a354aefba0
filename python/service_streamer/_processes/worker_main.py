"""The life of a worker process, from its first instruction to its last.

::

    started by start.py ── die with the parent ── receive the setup ── import the user's main
    module, unpickle the model ── init_model, warm-up ── ready ── batches ── end of file: exit

It serves batches like a worker thread does (`run_batches`, `_worker.serve`). Towards the user's
code it is a process of ``multiprocessing``: `Worker` runs in ``BaseProcess._bootstrap``, so that
profilers, tracebacks, ``current_process()`` and ``parent_process()`` are as they are there.
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
from typing import Any, NoReturn

from .. import _core, _lifecycle
from .._model import Model
from .._worker import is_logged, serve
from .init_failure import InitFailure


@dataclasses.dataclass(frozen=True)
class Job:
    """What a worker is to do, besides its model."""

    name: str
    owner: int
    """the process that has the engine"""
    device: int | str | None
    batch_size: int
    budget: float | None
    """of `_worker.isolate`"""
    output_batch: bool
    inline: bool = False
    """answers may travel to other machines: without shared memory"""


class Worker(BaseProcess):
    """This process, as ``multiprocessing`` sees it."""

    _start_method = None

    def __init__(self, link: _core.WorkerLink, job: Job, model: Model) -> None:
        super().__init__(name=job.name)
        self._parent_pid = job.owner
        self._link = link
        self._job = job
        self._model = model

    def run(self) -> None:
        """Load the model and answer batches until the engine closes the connection."""
        job, link = self._job, self._link
        try:
            with _reporting(link):
                predict = self._model.load(job.device, job.batch_size)
            del self._model  # what it was made of need not stay
            link.send_ready(_about())
            while (left := link.run_batches(predict, is_logged)) is not None:
                serve(*left, predict, job.budget)
                del left  # its items need not wait with us for the next one
        finally:
            _lifecycle.close_all()  # of streamers that the model has made


def main(fd: int, parent: int, output_batch: bool, inline: bool) -> NoReturn:
    """Be a spawned worker: the whole program of a new interpreter."""
    sys.exit(_run(fd, parent, output_batch, inline, None))


def run_forked(fd: int, parent: int, job: Job, model: Model, variables: Mapping[str, str]) -> int:
    """Be a forked worker; return the exit code."""
    threading.main_thread().name = "MainThread"  # and not as the thread that forked
    _leave_handlers_to_parent()
    os.environ.update(variables)
    link = _open(fd, parent, job.output_batch, job.inline)
    if link is None or link.receive_setup() is None:
        return 0
    return _bootstrap(link, job, model, None)


class ForkserverStart:
    """What a forkserver's child unpickles in place of a process, and runs.

    Not the usual way: ``multiprocessing`` would import the user's main module before anything of
    ours could set the environment.
    """

    def __init__(self, output_batch: bool, inline: bool, variables: Mapping[str, str]) -> None:
        self._output_batch = output_batch
        self._inline = inline
        self._variables = dict(variables)

    def _bootstrap(self, parent_sentinel: int) -> int:
        os.environ.update(self._variables)
        server: Any = forkserver._forkserver
        (fd,) = server._inherited_fds
        # Kept open it would keep the forkserver alive after our owner's death, and so us.
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = server._forkserver_address = None
        return _run(fd, os.getppid(), self._output_batch, self._inline, parent_sentinel)


def _run(fd: int, parent: int, output_batch: bool, inline: bool, sentinel: int | None) -> int:
    link = _open(fd, parent, output_batch, inline)
    setup = None if link is None else link.receive_setup()
    if link is None or setup is None:
        return 0  # the owner is gone
    this: Any = process.current_process()
    this._inheriting = True  # by this a Streamer of an unguarded main module knows where it is
    try:
        with _reporting(link):
            preparation, job, packed = pickle.loads(setup)
            spawn.prepare(preparation)
            model = pickle.loads(packed)
    except SystemExit:
        return 1
    finally:
        del this._inheriting
    del setup, packed, preparation
    return _bootstrap(link, job, model, sentinel)


def _open(fd: int, parent: int, output_batch: bool, inline: bool) -> _core.WorkerLink | None:
    # Ctrl-C is for the owner, which ends us. It has been blocked so far.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if not _core.die_with_parent(parent):
        return None
    return _core.WorkerLink(fd, output_batch, inline)


def _bootstrap(link: _core.WorkerLink, job: Job, model: Model, sentinel: int | None) -> int:
    if sentinel is None:
        with contextlib.suppress(OSError):  # a kernel without it: parent_process() cannot be joined
            sentinel = os.pidfd_open(job.owner)
    worker: Any = Worker(link, job, model)
    return int(worker._bootstrap(parent_sentinel=sentinel))


@contextlib.contextmanager
def _reporting(link: _core.WorkerLink) -> Iterator[None]:
    """Tell the engine what prevents this worker from ever being ready, and end it."""
    try:
        yield
    except BaseException as error:
        ours = error.__traceback__
        theirs = ours.tb_next if ours is not None else None  # without this frame
        text = "".join(traceback.format_exception(type(error), error, theirs))
        link.send_init_failed(InitFailure.of(error, text).note)
        raise SystemExit(1) from None


def _about() -> str:
    return json.dumps(
        {
            "pid": os.getpid(),
            "device": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "threads": os.environ.get("OMP_NUM_THREADS"),
        }
    )


def _leave_handlers_to_parent() -> None:
    """Undo what a forked child has of its parent's signal handling."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
