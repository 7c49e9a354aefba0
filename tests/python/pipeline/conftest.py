import pytest
from thread_models import Gate
from waits import LONG

from service_streamer import Pipeline


class Gates(list):
    """Makes models that wait until they are opened."""

    def __call__(self):
        self.append(Gate())
        return self[-1]


@pytest.fixture
def gates():
    return Gates()


@pytest.fixture
def pipelines(gates):
    """Makes pipelines. After the test all gates are opened and all pipelines closed."""
    made = []

    def make(*stages, **options):
        made.append(Pipeline(*stages, **options))
        return made[-1]

    yield make
    for gate in gates:
        gate.open()
    for pipeline in made:
        pipeline.close(drain=False, timeout=LONG)
