"""What tests of futures share whose workers are processes.

The workers are threads of the test at the other end of real sockets; `test_processes` has the real
ones.
"""

import pytest
from making import made_by
from remote import RemoteEngine
from thread_models import Gate, double


@pytest.fixture
def remote_gate():
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def remote():
    yield from made_by(lambda predict=double, **options: RemoteEngine(predict, **options))


@pytest.fixture
def held_remote(remote, remote_gate):
    """A remote engine whose worker is busy until `remote_gate.open()`."""

    def make(**options):
        engine = remote(remote_gate, **options)
        engine.first = engine.submit([0])
        remote_gate.wait_entered()
        return engine

    return make
