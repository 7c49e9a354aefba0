"""For compatibility with service_streamer 0.1. Import the classes from the package instead.

This is a folder because Python prefers a folder to the file ``service_streamer.py`` of the original
package. So the installation is checked even where the original has replaced our ``__init__.py``.
"""

from .._base import install_check as _install_check  # noqa: F401  (raises)
from .._engine.future import Future
from .._processes.streamer import Streamer
from .._redis.forever import run_redis_workers_forever
from .._redis.streamer import RedisStreamer
from .._redis.worker import RedisWorker
from .._threads.threaded import ThreadedStreamer
from ..managed_model import ManagedModel

__all__ = [
    "Future",
    "ManagedModel",
    "RedisStreamer",
    "RedisWorker",
    "Streamer",
    "ThreadedStreamer",
    "run_redis_workers_forever",
]
