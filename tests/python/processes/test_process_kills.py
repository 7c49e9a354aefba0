"""Workers killed at random under load, a hundred of them: no answer is lost or comes twice."""

import os
import random
import signal

import pytest
from asking import Asking
from process_models import double_after_a_while
from waits import eventually

from service_streamer._processes import slots

pytestmark = pytest.mark.endurance

CALLERS = 8


def kill_one(streamer, load, killed, rng):
    """Kill a worker that was not killed before.

    Half of them as soon as there is one, the others when something was answered meanwhile.
    """
    least = streamer.stats().completed + rng.randrange(2)

    def fresh():
        stats = streamer.stats()
        if stats.completed < least:
            return []
        workers = stats.worker_processes
        return [w.pid for w in workers if w.state == "ready" and w.pid not in killed]

    eventually(lambda: fresh() or load.failed())
    assert not load.failed(), load.stop()
    pid = rng.choice(fresh())
    os.kill(pid, signal.SIGKILL)
    killed.add(pid)


@pytest.mark.parametrize(("method", "kills"), [("fork", 100), ("spawn", 6)])
def test_random_kills_under_load_cost_no_answer_and_bring_none_twice(
    process_streamers, monkeypatch, method, kills
):
    monkeypatch.setattr(slots, "MAX_DELAY", 0.0)  # or the back-off would grow with every kill
    streamer = process_streamers(
        double_after_a_while,
        worker_num=2,
        mp_start_method=method,
        retries=1000,
        wait_for_worker_ready=True,
    )
    load = Asking(streamer, CALLERS)
    killed = set()
    rng = random.Random(kills)
    for _ in range(kills):
        kill_one(streamer, load, killed, rng)
    count = load.stop()
    assert len(killed) == kills
    assert count >= CALLERS

    stats = streamer.stats()
    assert (stats.submitted, stats.completed) == (count, count)
    assert (stats.queued_requests, stats.waiting_requests, stats.running_items) == (0, 0, 0)
    eventually(lambda: streamer.stats().worker_restarts == kills)
    streamer.close()
    load.check_ends()
