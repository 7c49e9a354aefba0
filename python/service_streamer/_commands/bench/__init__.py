"""``bench``: throughput and latency of a target against load, as a table and an HTML report.

::

    command ──▶ targets          what is measured: a model, a Streamer, a queue, a URL
       │
       ├─────▶ plan ──▶ load     the order of the measurements; one measurement
       ├─────▶ advice            the knee, and which batch_size and worker_num to choose
       └─────▶ table, report ──▶ plots
"""

from .command import add_to, run

__all__ = ["add_to", "run"]
