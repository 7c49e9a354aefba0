"""The log lines about the replicas of one owner.

Their extra fields are listed in docs/guide/monitoring/log-records.md. They are in the log of the
owner's process, which Ray keeps.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from ..._base.messages import describe
from ..._processes.init_failure import InitFailure

_logger = logging.getLogger("service_streamer")


class Log:
    """Writes them. Used by any thread.

    Args:
        streamer: the name of the model.
    """

    def __init__(self, streamer: str) -> None:
        self._streamer = streamer

    def ready(self, replica: int, about: str) -> None:
        """Write that a replica has loaded its model."""
        self._write(logging.INFO, "replica %d is ready: %s", replica, about, replica=replica)

    def died(self, replica: int, error: Any) -> None:
        """Write that a replica has died."""
        text = "replica %d has died: %s"
        self._write(logging.WARNING, text, replica, error, replica=replica, error=str(error))

    def failed(self, failure: InitFailure, attempt: int) -> None:
        """Write that a replica could not load the model."""
        text = "a replica could not load the model: %s"
        self._write(logging.ERROR, text, failure.for_log(), attempt=attempt)

    def lacking(self, why: str) -> None:
        """Write that no node has the resources of a replica."""
        self._write(logging.ERROR, "%s", why, error=why)

    def crowded(self, why: str) -> None:
        """Write that replicas may wait for a place."""
        self._write(logging.WARNING, "%s", why, error=why)

    def scaled(self, replicas: int, queue_time: float) -> None:
        """Write that there should be another number of replicas."""
        text = "%d replicas from now on; the mean time in the queue is %.3f s"
        fields = {"replicas": replicas, "queue_time": queue_time}
        self._write(logging.INFO, text, replicas, queue_time, **fields)

    def broken(self, error: BaseException) -> None:
        """Write that a thread met an unexpected exception, with its traceback."""
        about = {"streamer": self._streamer, "error": describe(error)}
        with contextlib.suppress(Exception):
            _logger.error("an unexpected exception of the owner", exc_info=error, extra=about)

    def _write(self, level: int, text: str, *args: Any, **fields: Any) -> None:
        extra = {"streamer": self._streamer, **fields}
        with contextlib.suppress(Exception):  # a handler that raises must not end a thread
            _logger.log(level, "%s: " + text, self._streamer, *args, extra=extra)
