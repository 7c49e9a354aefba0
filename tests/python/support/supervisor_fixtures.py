"""Supervisors whose server, processes and clock only pretend."""

import pytest
from fake_supervisor import Fake
from waits import Threads


@pytest.fixture
def fakes():
    threads = Threads()
    made = []

    def make(*args):
        fake = Fake(*args)
        made.append(fake)
        threads.run(fake.supervisor.run)
        fake.settle()
        return fake

    yield make
    for fake in made:
        fake.supervisor.finish()
    assert threads.join() == [None] * len(made)
