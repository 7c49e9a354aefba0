"""A streamer that many tests share, and one of their own.

The tests are marked ``over_ray``: `make test-ray` runs them in one process, with one cluster.
"""

import pytest
from making import made_by

pytest.importorskip("ray")

from pathlib import Path

from ray_models import Various

from service_streamer import RayStreamer

SMALL = {"num_cpus": 0.01}  # more replicas than this machine has processors


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.over_ray)


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

    def make(*args, **kwargs):
        return RayStreamer(*args, **{**SMALL, **kwargs})

    yield from made_by(make, lambda streamer: streamer.close(drain=False, timeout=0))
