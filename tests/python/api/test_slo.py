"""slo: requests that would be answered too late raise QueueFull."""

import concurrent.futures
import contextlib
import math
import time

import pytest
from waits import LONG, eventually

from service_streamer import QueueFull, ThreadedStreamer
from service_streamer._statistics.verdict import verdict

SLO = 1.0  # s; less fails where a busy machine takes long to start the first batch


def too_slow(batch):
    time.sleep(1.5 * SLO)
    return batch


def slower(batch):
    time.sleep(0.05)
    return batch


def refused(streamer):
    """Send a request; return the error if it is refused."""
    try:
        streamer.submit([1])
    except QueueFull as error:
        return error
    return None


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "1", True])
def test_slo_is_a_positive_number_of_seconds(value):
    with pytest.raises(ValueError, match=r"slo must be a finite number of seconds, above 0"):
        ThreadedStreamer(list, 8, slo=value)


def test_a_loose_slo_changes_nothing(streamers):
    streamer = streamers(batch_size=4, slo=1000)
    assert streamer.predict(list(range(10))) == [2 * i for i in range(10)]
    assert list(streamer.map(range(40))) == [2 * i for i in range(40)]
    assert streamer.stats().rejected == 0


def test_queued_requests_that_cannot_be_in_time_raise_queue_full(streamers):
    streamer = streamers(too_slow, batch_size=1, slo=SLO)
    first, second = streamer.submit([1]), streamer.submit([2])
    assert first.result() == [1]
    with pytest.raises(QueueFull, match="slo") as caught:
        second.result()
    assert caught.value.retry_after >= 0
    assert isinstance(second.exception(), QueueFull)


@pytest.mark.not_redis
def test_a_hung_model_does_not_keep_queued_requests(streamers, gate):
    streamer = streamers(gate, batch_size=1, slo=SLO)
    running = streamer.submit([1])
    gate.wait_entered()
    queued = streamer.submit([2])
    with pytest.raises(QueueFull, match="slo"):  # though nothing else happens
        queued.result(LONG)
    assert not running.done()
    gate.open()
    assert running.result() == [2]


@pytest.mark.not_redis
def test_the_slo_is_given_changed_and_removed_at_run_time(streamers, gate):
    streamer = streamers(gate, batch_size=1)
    running = streamer.submit([1])
    gate.wait_entered()
    early = streamer.submit([2])
    streamer.configure(slo=1000)
    assert streamer.stats().slo == 1000
    streamer.configure(slo=SLO)
    late = streamer.submit([3])
    for queued in (early, late):
        assert isinstance(queued.exception(LONG), QueueFull)
    streamer.configure(slo=0)
    assert streamer.stats().slo == 0
    kept = streamer.submit([4])
    gate.open()
    assert running.result() == [2]
    assert kept.result() == [8]
    for wrong in (-1, math.inf, "1"):
        with pytest.raises(ValueError, match="slo must be"):
            streamer.configure(slo=wrong)


def test_an_slo_below_the_time_of_the_model_lets_probes_through(streamers):
    # Over Redis a request may seem to be older by some ms, the error of the clocks, than it is.
    streamer = streamers(slower, batch_size=4, slo=0.03)
    answers = []

    def answered():
        with contextlib.suppress(QueueFull):
            answers.append(streamer.predict([1]))
        return len(answers) == 3

    eventually(answered)
    assert answers == 3 * [[1]]


def test_explain_names_an_slo_that_cannot_be_kept():
    with ThreadedStreamer(too_slow, 4, slo=SLO) as streamer:
        assert "slo 1 s" in streamer.explain()
        streamer.predict([1])
        eventually(lambda: refused(streamer))
        text = streamer.explain()
        assert verdict(streamer.stats()).startswith("slo=1 s is below the time of the model")
    assert "rejected (QueueFull)" in text


def test_clients_of_a_streamer_get_the_refusals(process_streamers, process_gate):
    from service_streamer import Streamer

    owner = process_streamers(process_gate, batch_size=1, slo=SLO)
    with Streamer.connect(owner.address) as client:
        running = client.submit([1])
        process_gate.wait_entered()
        futures = []
        eventually(lambda: refused_over(client, futures))
        process_gate.open()
        assert running.result() == [2]
    assert owner.stats().rejected > 0


def test_a_client_changes_the_slo_of_the_owner(process_streamers):
    from service_streamer import Streamer

    owner = process_streamers(batch_size=4)
    with Streamer.connect(owner.address) as client:
        client.configure(slo=SLO)
        assert owner.stats().slo == SLO
        client.configure(slo=0)
        assert owner.stats().slo == 0


def refused_over(client, futures):
    """Send a request; return True once one of them was refused."""
    futures.append(client.submit([1]))
    done, _ = concurrent.futures.wait(futures, timeout=0.02)
    errors = [future.exception() for future in done]
    return any(isinstance(error, QueueFull) and error.retry_after >= 0 for error in errors)
