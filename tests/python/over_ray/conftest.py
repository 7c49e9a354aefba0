"""A Ray cluster of this machine, and a streamer that many tests share.

The tests are marked ``over_ray``: `make test-ray` runs them in one process, with one cluster.
"""

import pytest

ray = pytest.importorskip("ray")

from pathlib import Path  # noqa: E402

from ray.cluster_utils import Cluster  # noqa: E402
from ray_models import Various  # noqa: E402

from service_streamer import RayStreamer  # noqa: E402

SUPPORT = Path(__file__).parents[1] / "support"
SMALL = {"num_cpus": 0.01}  # more replicas than this machine has processors


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.over_ray)


@pytest.fixture(scope="session")
def ray_cluster():
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False}
    )
    ray.init(
        address=cluster.address,
        runtime_env={"env_vars": {"PYTHONPATH": str(SUPPORT)}},
        log_to_driver=False,
        configure_logging=False,
    )
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="session")
def shared_ray_streamer(ray_cluster):
    streamer = RayStreamer(Various, 8, replicas=2, name="shared", key=kind, **SMALL)
    streamer.wait_ready(60)
    yield streamer
    streamer.close()


def kind(item):
    return type(item).__name__


@pytest.fixture
def ray_streamers(ray_cluster):
    """Makes streamers, and closes them at the end."""
    made = []

    def make(*args, **kwargs):
        made.append(RayStreamer(*args, **{**SMALL, **kwargs}))
        return made[-1]

    yield make
    for streamer in made:
        streamer.close(drain=False, timeout=0)
