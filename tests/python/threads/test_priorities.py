"""Which requests go first."""

import pytest
from waits import LONG


@pytest.mark.not_redis
def test_requests_of_a_higher_priority_go_first(held, gate):
    streamer = held(batch_size=2)
    futures = [
        streamer.submit([f"{priority}{i}"], priority=priority)
        for i in range(2)
        for priority in (0, -1, 7)
    ]
    gate.open()
    for future in futures:
        future.result(LONG)
    assert gate.batches[1:] == [["70", "71"], ["00", "01"], ["-10", "-11"]]


@pytest.mark.not_redis
def test_with_ageing_a_low_priority_overtakes_later_requests(held, gate):
    streamer = held(batch_size=1, ageing=1e-9)
    low = streamer.submit(["low"], priority=-1)
    high = streamer.submit(["high"])
    gate.open()
    for future in (low, high):
        future.result(LONG)
    assert gate.batches[1:] == [["low"], ["high"]]
