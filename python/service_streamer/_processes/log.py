"""The log lines about the processes of one streamer.

Their extra fields are listed in docs/guide/monitoring/log-records.md.
"""

from __future__ import annotations

import logging
from typing import Any

from .init_failure import InitFailure
from .slots import Slot, Worker

_logger = logging.getLogger("service_streamer")


class Log:
    """Writes them. Used by the supervisor thread.

    Args:
        streamer: the name of its first model.
    """

    def __init__(self, streamer: str) -> None:
        self._fields = {"streamer": streamer}

    def started(self, worker: Worker) -> None:
        """Write that a worker was started. It replaces the one that its slot has lost, if any."""
        pid, lost = worker.process.pid, worker.slot.lost
        if lost is None:
            self._write(logging.INFO, worker, "worker process %d was started", pid)
        else:
            what = "worker process %d was started, to replace %d"
            self._write(logging.INFO, worker, what, pid, lost, replaces=lost)

    def ready(self, worker: Worker) -> None:
        """Write that a worker has loaded its model."""
        self._write(logging.INFO, worker, "worker process %d is ready", worker.process.pid)

    def cores(self, text: str, worker_num: int, threads: int) -> None:
        """Write that the workers have more threads than there are cores."""
        fields = {**self._fields, "workers": worker_num, "threads": threads}
        _logger.warning(text, extra=fields)

    def died(self, worker: Worker, how: str) -> None:
        """Write that a worker has ended although it should not."""
        pid = worker.process.pid
        self._write(logging.ERROR, worker, "worker process %d %s", pid, how, error=how)

    def retires(self, worker: Worker) -> None:
        """Write that a worker gets no more batches, because of `resize` or `restart`."""
        self._write(logging.INFO, worker, "worker process %d retires", worker.process.pid)

    def could_not_load(self, slot: Slot, why: InitFailure, final: bool) -> None:
        """Write why a slot has no worker; `final`: there is no further attempt."""
        level = logging.ERROR if final else logging.WARNING
        text = "worker %d could not load its model: %s"
        fields = {**self._fields, "worker": slot.index, "error": why.message}
        _logger.log(level, text, slot.index, why.for_log(), extra=fields)

    def client(self, pid: str, connected: bool) -> None:
        """Write that a client process has connected, or has gone."""
        what = "client process %s has connected" if connected else "client process %s has gone"
        _logger.info(what, pid, extra={**self._fields, "client_pid": int(pid)})

    def _write(self, level: int, worker: Worker, text: str, *args: object, **more: Any) -> None:
        device = None if worker.device is None else str(worker.device)
        about = {"worker": worker.slot.index, "worker_pid": worker.process.pid, "device": device}
        fields = {**self._fields, **about, **more}
        _logger.log(level, text, *args, extra=fields)
