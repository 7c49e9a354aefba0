"""A Ray cluster of the measurement's own, and Ray Serve's @serve.batch on it.

The clients call a DeploymentHandle in the driver, so no proxy is in the way. What helps Ray Serve is
set: room for all clients at one replica (the default is 5 requests), and no log of each request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

BATCH_SIZE = 64
ONGOING = 1024  # requests at one replica


def start_cluster() -> None:
    """Start a cluster on this machine; it ends with the measurement.

    It claims more cores than there are, so that all actors find a place.
    """
    import ray

    ray.init(num_cpus=8, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)


def handle(model: Callable[[list[Any]], list[Any]], replicas: int, wait: float) -> Any:
    """Deploy a model that collects a batch for at most `wait` seconds; the handle has an answer."""
    start_cluster()
    from ray import serve

    @serve.deployment(num_replicas=replicas, max_ongoing_requests=ONGOING)
    class Model:
        @serve.batch(max_batch_size=BATCH_SIZE, batch_wait_timeout_s=wait)
        async def __call__(self, batch: list[Any]) -> list[Any]:
            return model(batch)

    serve.start(proxy_location="Disabled", logging_config={"enable_access_log": False})
    deployed = serve.run(Model.bind())
    deployed.remote(0).result()
    return deployed
