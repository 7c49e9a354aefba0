"""The log record of a batch."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

from .. import _core

_logger = logging.getLogger("service_streamer")


class LogEntry:
    """One log record per batch. The values are read before the batch is answered.

    Args:
        batch: before the model runs.
        name: of the model.
    """

    def __init__(self, batch: _core.Batch, name: str) -> None:
        self.fields: dict[str, Any] = {
            "streamer": name,
            "worker_pid": os.getpid(),
            "device": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "items": len(batch),
            "requests": batch.requests,
            "close_reason": batch.reason,
            "oldest_wait_seconds": batch.age,
        }
        self._start = time.perf_counter()

    def write(self) -> None:
        """Log the batch, which has ended."""
        fields = {**self.fields, "run_seconds": time.perf_counter() - self._start}
        _logger.debug(
            "batch: %d items of %d requests, close reason %s, oldest waited %.2f ms, ran %.2f ms",
            fields["items"],
            fields["requests"],
            fields["close_reason"],
            fields["oldest_wait_seconds"] * 1e3,
            fields["run_seconds"] * 1e3,
            extra=fields,
        )
