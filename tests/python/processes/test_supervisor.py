"""The supervisor: it starts workers, replaces those that end, and gives up on some."""

import pytest
from fake_supervisor import NEW, Fake
from waits import LONG, Threads, eventually

from service_streamer import StreamerClosed, WorkerInitError
from service_streamer._processes import pool, slots

pytest_plugins = ["supervisor_fixtures"]


def test_a_worker_that_served_long_is_replaced_at_once(fakes):
    fake = fakes(1)
    fake.ready(0)
    fake.now += slots.STABLE_AFTER
    fake.dies(0, had_batch=True)
    assert fake.running == [0]
    assert fake.failures == []


def test_deaths_in_a_row_are_answered_with_exponential_back_off(fakes):
    fake = fakes(1)
    delays = []
    for worker in range(12):
        fake.ready(worker)
        fake.dies(worker)
        delays.append(fake.timeouts[-1])
        if fake.running:
            delays[-1] = 0.0
        else:
            fake.passes(delays[-1])
    expected = [0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 10, 10]
    assert delays == pytest.approx(expected)
    fake.supervisor._pool.slots[0].deaths += 5000  # a night of it
    fake.ready(12)
    fake.dies(12)
    assert fake.timeouts[-1] == pytest.approx(10)
    fake.passes(10)
    fake.ready(13)
    fake.now += slots.STABLE_AFTER
    fake.dies(13)
    assert fake.running == [0]  # forgiven
    assert fake.failures == []  # it could always load its model


def test_a_worker_that_dies_once_while_loading_fails_no_request(fakes):
    fake = fakes(1)
    for worker in (0, 2):
        fake.dies(worker)
        fake.passes(slots.FIRST_DELAY)
        fake.ready(worker + 1)
        fake.now += slots.STABLE_AFTER
        fake.dies(worker + 1, had_batch=True)
    assert fake.failures == []
    assert fake.running == [0]


def test_a_shared_worker_that_dies_while_it_starts_fails_no_request(fakes):
    fake = fakes(1)
    deaths = []
    fake.supervisor.share(lambda: deaths.append(len(fake.started)))
    for worker in range(2 * pool.MAX_ATTEMPTS):
        fake.dies(worker)
        fake.passes(slots.MAX_SHARED_DELAY)
    assert fake.failures == deaths == []
    started = len(fake.started)
    fake.ready(started - 1)
    fake.dies(started - 1)  # it had no batch
    fake.passes(slots.MAX_SHARED_DELAY)
    fake.ready(started)
    fake.dies(started, had_batch=True)
    assert deaths == [started + 1]  # before the next one started
    fake.passes(slots.MAX_SHARED_DELAY)
    fake.fails(started + 1, "Traceback: no main module")
    assert fake.failures == ["init: Traceback: no main module"]


def test_a_process_that_cannot_be_started_is_tried_again(fakes):
    fake = Fake(1)
    fake.broken = OSError(24, "Too many open files")
    threads = Threads()
    threads.run(fake.supervisor.run)
    fake.settle()
    assert fake.failures == []
    fake.passes(slots.FIRST_DELAY)
    assert "Too many open files" in fake.failures[0]
    for _ in range(2 * pool.MAX_ATTEMPTS):  # that is not the model's fault
        fake.passes(slots.MAX_DELAY)
    fake.broken = None
    fake.passes(slots.MAX_DELAY)
    fake.ready(0)
    assert fake.failures[-1] is None
    fake.supervisor.finish()
    threads.join()


def test_others_that_still_load_are_waited_for(fakes):
    fake = fakes(3)
    fake.fails(0)
    fake.fails(1)
    assert fake.failures == []
    fake.ready(2)
    assert fake.failures == []


def test_a_crash_loop_is_given_up_and_reported(fakes):
    fake = fakes(1)
    for worker in range(pool.MAX_ATTEMPTS):
        assert fake.running == [0]
        fake.fails(worker, "Traceback: never")
        fake.passes(slots.MAX_DELAY)
    assert fake.running == []
    assert fake.timeouts[-1] is None
    assert "5 times in a row" in fake.failures[-1]
    assert "Traceback: never" in fake.failures[-1]
    with pytest.raises(WorkerInitError, match="5 times in a row"):
        fake.supervisor.wait_ready(0)


def test_threads_that_are_more_than_the_cores_are_reported_once(fakes, caplog, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    fake = fakes(2)
    for worker in (0, 1):
        fake.event("ready", worker, '{"cpu_threads": 2}')
    (record,) = (each for each in caplog.records if each.levelname == "WARNING")
    assert record.message.startswith("2 workers with 2 threads each share 2 cores")
    assert (record.workers, record.threads) == (2, 2)


def test_a_worker_given_up_beside_others_fails_no_request_but_wait_ready(fakes):
    fake = fakes(2)
    fake.ready(0)
    for worker in range(1, 1 + pool.MAX_ATTEMPTS):
        fake.fails(worker)
        fake.passes(slots.MAX_DELAY)
    assert fake.running == [0]
    assert fake.failures == []
    with pytest.raises(WorkerInitError, match="5 times in a row"):
        fake.supervisor.wait_ready(0)


def test_the_end_wakes_threads_that_wait(fakes, threads):
    fake = fakes(1)
    fake.ready(0)
    fake.supervisor.resize(2)
    rolled = fake.supervisor.restart(NEW)
    threads.run(fake.supervisor.wait_ready, LONG)
    threads.run(fake.supervisor.wait_restarted, rolled, LONG)
    fake.supervisor.close()
    fake.supervisor.finish()
    assert [type(outcome) for outcome in threads.join()] == [StreamerClosed] * 2
    eventually(lambda: not fake.running)


def test_a_worker_lost_while_the_streamer_drains_is_replaced(fakes):
    fake = fakes(1)
    fake.ready(0)
    fake.now += slots.STABLE_AFTER
    fake.supervisor.close()
    fake.dies(0, had_batch=True)
    assert fake.running == [0]


def test_one_that_stays_after_the_end_of_its_socket_is_killed(fakes):
    fake = fakes(1)
    fake.ready(0)
    fake.now += slots.STABLE_AFTER
    fake.event("gone", 0)
    assert fake.timeouts[-1] == pytest.approx(pool.GRACE)
    assert not fake.started[0].killed
    fake.passes(pool.GRACE)
    assert fake.started[0].killed
    assert fake.timeouts[-1] is None
