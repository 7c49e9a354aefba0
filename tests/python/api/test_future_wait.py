"""concurrent.futures.wait and as_completed miss no end and tell none twice."""

import concurrent.futures

import pytest
from waits import LONG

pytestmark = pytest.mark.every_python


def test_wait_of_the_standard_library(held, gate):
    streamer = held(batch_size=1)
    futures = [streamer.submit([i]) for i in range(20)]
    done, not_done = concurrent.futures.wait(futures, timeout=0)
    assert (done, not_done) == (set(), set(futures))
    gate.open()
    done, not_done = concurrent.futures.wait(futures, timeout=LONG)
    assert (done, not_done) == (set(futures), set())


def test_wait_for_the_first_and_for_the_first_exception(held, gate):
    streamer = held(batch_size=1)
    futures = [streamer.submit(["x"]), streamer.submit([None]), streamer.submit(["y"])]
    cancelled = streamer.submit(["z"])
    cancelled.cancel()
    first = concurrent.futures.wait(
        [*futures, cancelled], timeout=LONG, return_when=concurrent.futures.FIRST_COMPLETED
    )
    assert first.done == {cancelled}
    gate.open()
    done, _ = concurrent.futures.wait(
        futures, timeout=LONG, return_when=concurrent.futures.FIRST_EXCEPTION
    )
    assert futures[1] in done
    assert isinstance(futures[1].exception(), TypeError)  # 2 * None


def test_wait_and_as_completed_do_not_miss_an_end_under_load(streamers, threads):
    """The end of a request races with the installation of the waiters."""
    streamer = streamers(batch_size=4)

    def collect():
        for _ in range(100):
            futures = [streamer.submit([i]) for i in range(8)]
            done, not_done = concurrent.futures.wait(futures, timeout=LONG)
            assert len(done) == 8
            assert not not_done
            futures = [streamer.submit([i]) for i in range(8)]
            assert len(list(concurrent.futures.as_completed(futures, timeout=LONG))) == 8
        return "all"

    for _ in range(4):
        threads.run(collect)
    assert threads.join() == ["all"] * 4
