"""A Ray cluster of the measurement's own, and Ray Serve's @serve.batch on it.

The clients call a DeploymentHandle in the driver, so no proxy is in the way. What helps Ray Serve
is set: room for all clients at one replica (the default is 5 requests), and no log of each request.
A variant has Ray Serve's own settings for throughput.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

BATCH_SIZE = 64
ONGOING = 1024  # requests at one replica
THROUGHPUT = {
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "1",  # else only coroutines can use a handle
}
"""environment variables of the variant"""


def start_cluster() -> None:
    """Start a cluster on this machine; it ends with the measurement.

    It claims more cores than there are, so that all actors find a place.
    """
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        address="local",
        num_cpus=8,
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )


def handle(model: Callable[[list[Any]], list[Any]], replicas: int, variant: str) -> Any:
    """Deploy a model; return a handle that has its first answer.

    The variant is the most seconds in which a batch is collected, after "throughput-" or not.
    """
    kind, _, wait = variant.rpartition("-")
    if kind:
        os.environ.update(THROUGHPUT)  # before Ray Serve is imported, here and in its actors
    start_cluster()
    from ray import serve

    @serve.deployment(num_replicas=replicas, max_ongoing_requests=ONGOING)
    class Model:
        @serve.batch(max_batch_size=BATCH_SIZE, batch_wait_timeout_s=float(wait))
        async def __call__(self, batch: list[Any]) -> list[Any]:
            return model(batch)

    serve.start(proxy_location="Disabled", logging_config={"enable_access_log": False})
    deployed = serve.run(Model.bind())
    deployed.remote(0).result()
    return deployed
