import threading

import pytest
from thread_models import double
from waits import LONG

from service_streamer.hub import ModelHub, ModelSpec, TensorSpec


def sums(batch):
    """Two outputs of two inputs."""
    return [{"sum": row["a"] + row["b"], "text": f"{row['a']}+{row['b']}"} for row in batch]


def upper(batch):
    return [text.upper() for text in batch]


def means(batch):
    return [image.mean() for image in batch]


def fails(batch):
    raise RuntimeError("the model is broken")


def count_to(batch):
    return [iter(range(number)) for number in batch]


MODELS = {
    "double": ModelSpec(double, batch_size=8),
    "upper": ModelSpec(upper, batch_size=8),
    "sums": ModelSpec(
        sums,
        batch_size=8,
        inputs={"a": TensorSpec("INT64"), "b": TensorSpec("INT64")},
        outputs={"sum": TensorSpec("INT64"), "text": TensorSpec("STRING")},
    ),
    "means": ModelSpec(
        means,
        batch_size=8,
        inputs={"image": TensorSpec("FP32", (2, -1))},
        outputs={"mean": TensorSpec("FP32")},
    ),
    "sizes": ModelSpec(
        lambda batch: [len(each) for each in batch],
        batch_size=8,
        inputs={"file": TensorSpec("BYTES")},
    ),
    "fails": ModelSpec(fails, batch_size=8),
    "counts": ModelSpec(count_to, batch_size=8),
}


@pytest.fixture
def server_hubs():
    """Makes hubs and closes them after the test."""
    made = []

    def make(models=MODELS, **options):
        made.append(ModelHub(models, **options))
        return made[-1]

    yield make
    for hub in made:
        hub.close(drain=False, timeout=LONG)


@pytest.fixture
def app(server_hubs):
    """An application with all models."""
    from http_servers import App

    return App(server_hubs())


@pytest.fixture
def http_servers(server_hubs):
    """Starts servers and stops them after the test."""
    from http_servers import HttpServer

    made = []

    def start(models=MODELS, **options):
        made.append(HttpServer(server_hubs(models), **options))
        return made[-1]

    yield start
    for server in made:
        server.close()
    assert not [each for each in threading.enumerate() if each.name.startswith("asyncio_")]
