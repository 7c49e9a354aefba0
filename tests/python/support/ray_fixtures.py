"""A Ray cluster for programs that a module of tests starts."""

import pytest
import ray
from ray.cluster_utils import Cluster


@pytest.fixture(scope="module")
def ray_address():
    """The address of a cluster, which programs find by RAY_ADDRESS, too."""
    with pytest.MonkeyPatch.context() as patch:
        if ray.is_initialized():  # by the tests in over_ray
            address = ray.get_runtime_context().gcs_address
            patch.setenv("RAY_ADDRESS", address)
            yield address
            return
        node = {"num_cpus": 8, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=node)
        patch.setenv("RAY_ADDRESS", cluster.address)
        yield cluster.address
        ray.shutdown()
        cluster.shutdown()
