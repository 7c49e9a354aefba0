"""A Ray cluster of this machine for the tests of a module."""

import os

import pytest
import ray
from ray.cluster_utils import Cluster


@pytest.fixture(scope="module")
def ray_address():
    """The address of a cluster, which programs that are started here also find."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 8})
    os.environ["RAY_ADDRESS"] = cluster.address
    yield cluster.address
    del os.environ["RAY_ADDRESS"]
    ray.shutdown()
    cluster.shutdown()
