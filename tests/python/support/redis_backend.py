"""A RedisStreamer with a worker of its own, made like a ThreadedStreamer: for the common tests."""

import threading

from redis_tools import new_prefix
from waits import LONG

from service_streamer import RedisStreamer, RedisWorker

CLIENT = (
    "worker_timeout",
    "max_queue",
    "overflow",
    "output",
    "key",
    "weight",
    "coalesce",
    "cache",
    "bucket",
    "secret",
)
WORKER = (
    "max_latency",
    "policy",
    "slo",
    "ageing",
    "tenants",
    "max_weight",
    "padded",
    "bucket",
    "isolate_errors",
    "isolation_budget",
    "secret",
)


class RedisPair:
    """The streamer of the test, `streamer`, and a worker in a thread with one forked process."""

    def __init__(self, server, predict, batch_size, *args, **kwargs):
        options = {**kwargs, **dict(zip(("max_latency", "worker_timeout"), args, strict=False))}
        unknown = set(options) - {*CLIENT, *WORKER}
        assert not unknown, f"neither the client nor the worker has {unknown}"
        self.prefix = new_prefix()
        of_client = {name: options[name] for name in CLIENT if name in options}
        of_worker = {name: options[name] for name in WORKER if name in options}
        place = {"redis_broker": server.url, "prefix": self.prefix}
        self.streamer = RedisStreamer(**place, batch_size=max(batch_size, 1), **of_client)
        self.worker = RedisWorker(predict, batch_size, **place, **of_worker)
        self._thread = threading.Thread(target=self.worker.run_forever, daemon=True)
        self._thread.start()

    def close(self):
        self.streamer.close(drain=False, timeout=LONG)
        self.worker.close(drain=False)
        self._thread.join(LONG)
        assert not self._thread.is_alive(), "the worker hangs"
