"""How long an outage of the broker seems to last."""

import pytest
from waits import LONG

pytest.importorskip("redis")

from service_streamer import BrokerError
from service_streamer._redis.retrying import Outage

pytestmark = pytest.mark.over_redis


def test_an_outage_that_begins_does_not_seem_to_last_for_long_to_another_thread():
    """Else a worker that drains would give up what it has."""
    outage, seen = Outage("a worker"), []

    class Lines(set):
        def add(self, line):
            super().add(line)
            seen.append(outage.seconds())

    outage._failing = Lines()
    outage.failed("a line", BrokerError("it is away", transient=True))
    assert seen[0] < LONG
