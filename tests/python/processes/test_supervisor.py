"""The supervisor: with a server, processes and a clock that only pretend."""

import queue
import re

import pytest
from waits import LONG, Threads, eventually

from service_streamer import StreamerClosed, WorkerInitError
from service_streamer._processes import pool, slots
from service_streamer._processes.start import UNGUARDED_MAIN, Started, Version
from service_streamer._processes.supervisor import Supervisor

OLD, NEW = Version("old", b""), Version("new", b"")


class FakeProcess:
    """Ends when it is killed, or when the server lets it go."""

    def __init__(self, pid, index, worker_num, version):
        self.pid, self.index, self.worker_num, self.version = pid, index, worker_num, version
        self.ended = self.killed = False

    def kill(self):
        self.ended = self.killed = True

    def wait(self, timeout):
        return self.ended

    def describe(self):
        return "was killed by SIGSEGV"


class Fake:
    """Server, starter and clock of one supervisor."""

    def __init__(self, worker_num=1, version=OLD):
        self.now = 100.0
        self.started = []  # all processes, in their order; their index is the server's number
        self.retired = []
        self.failures = []  # what set_failure was told
        self.timeouts = []  # what next_event was given
        self.events = queue.Queue()
        self.broken = None  # an exception that starting a process raises
        self.waits = False  # it has come to its first event
        self.hears = True  # the server, of who is to be retired, at once
        self.supervisor = Supervisor(self, self.start, version, worker_num, 8, lambda: self.now)

    # --- what the supervisor uses

    def start(self, index, worker_num, batch_size, version):
        if self.broken is not None:
            raise self.broken
        process = FakeProcess(1000 + len(self.started), index, worker_num, version)
        self.started.append(process)
        return Started(-1, process, b"setup")

    def add_worker(self, socket, pid, setup):
        return pid - 1000

    def retire_worker(self, worker):
        self.retired.append(worker)
        if self.hears:
            self.events.put(("retired", worker, "", False, False))

    def next_event(self, timeout):
        self.timeouts.append(timeout)
        if self.waits:
            self.events.task_done()  # what it was given before
        self.waits = True
        return self.events.get(timeout=LONG)

    def interrupt(self):
        self.events.put(None)

    def set_failure(self, note):
        self.failures.append(note)

    def stop(self):
        for process in self.started:
            process.ended = True

    # --- what a test does

    def event(self, kind, worker, text="", had_batch=False, hung=False):
        """Has an event handled, and what follows from it done."""
        self.events.put((kind, worker, text, had_batch, hung))
        self.settle()

    def ready(self, *workers):
        for worker in workers:
            self.event("ready", worker)

    def dies(self, worker, **details):
        self.started[worker].ended = True
        self.event("gone", worker, **details)

    def fails(self, worker, text="Traceback: no weights"):
        self.event("init_failed", worker, text)
        self.dies(worker)

    def passes(self, seconds):
        self.now += seconds
        self.interrupt()
        self.settle()

    def settle(self):
        eventually(lambda: self.waits and self.events.unfinished_tasks == 0)

    @property
    def running(self):
        """The places of the processes that run."""
        return [process.index for process in self.started if not process.ended]


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


def test_it_starts_as_many_workers_as_there_should_be(fakes):
    fake = fakes(3)
    assert [process.index for process in fake.started] == [0, 1, 2]
    assert {process.worker_num for process in fake.started} == {3}
    assert fake.timeouts[-1] is None  # nothing to wake up for


def test_it_is_ready_when_every_worker_is(fakes):
    fake = fakes(2)
    assert not fake.supervisor.wait_ready(0)
    fake.ready(0)
    assert not fake.supervisor.wait_ready(0)
    fake.ready(1)
    assert fake.supervisor.wait_ready(0)


def test_who_waits_for_ready_is_woken(fakes, threads):
    fake = fakes(1)
    threads.run(fake.supervisor.wait_ready, LONG)
    fake.ready(0)
    assert threads.join() == [True]


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


def test_one_that_cannot_load_its_model_fails_all_requests_at_once(fakes):
    fake = fakes(1)
    fake.fails(0, "Traceback: no weights")
    assert fake.failures == ["init: Traceback: no weights"]
    with pytest.raises(WorkerInitError, match="no weights"):
        fake.supervisor.wait_ready(0)
    fake.passes(0.1)
    fake.ready(1)  # it could, the second time
    assert fake.failures == ["init: Traceback: no weights", None]
    assert fake.supervisor.wait_ready(0)


def test_a_death_while_loading_is_told_with_its_cause(fakes):
    fake = fakes(1)
    fake.dies(0)
    (note,) = fake.failures
    assert re.match("init: .*1000.*SIGSEGV", note)


def test_a_process_that_cannot_be_started_is_tried_again(fakes):
    fake = Fake(1)
    fake.broken = OSError(24, "Too many open files")
    threads = Threads()
    threads.run(fake.supervisor.run)
    fake.settle()
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


def test_a_crash_loop_is_given_up_and_told(fakes):
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


def test_an_unguarded_main_module_is_not_tried_twice(fakes):
    fake = fakes(1)
    fake.fails(0, f"RuntimeError: {UNGUARDED_MAIN}")
    assert fake.timeouts[-1] is None
    assert 'if __name__ == "__main__"' in fake.failures[-1]


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


def test_more_workers(fakes):
    fake = fakes(1)
    fake.ready(0)
    fake.supervisor.resize(3)
    fake.settle()
    assert fake.running == [0, 1, 2]
    assert not fake.supervisor.wait_ready(0)
    fake.ready(1, 2)
    assert fake.supervisor.wait_ready(0)


def test_fewer_workers_finish_what_they_have(fakes):
    fake = fakes(3)
    fake.ready(0, 1, 2)
    fake.supervisor.resize(1)
    fake.settle()
    assert sorted(fake.retired) == [1, 2]
    assert not any(process.killed for process in fake.started)
    assert fake.supervisor.wait_ready(0)
    fake.dies(1)
    fake.dies(2)
    assert fake.running == [0]  # they are not missed


def test_a_worker_that_loads_in_vain_is_ended(fakes):
    fake = fakes(2)
    fake.supervisor.resize(1)
    fake.settle()
    assert [process.killed for process in fake.started] == [False, True]


def roll(fake, version=NEW):
    roll = fake.supervisor.restart(version)
    fake.settle()
    return roll


def test_a_restart_replaces_one_worker_after_the_other(fakes):
    fake = fakes(2)
    fake.ready(0, 1)
    rolled = roll(fake)
    assert fake.retired == []
    assert [process.version for process in fake.started] == [OLD, OLD, NEW]
    fake.ready(2)  # beside the old one, which goes only now
    assert fake.retired == [0]
    assert [process.index for process in fake.started] == [0, 1, 0, 1]
    assert not fake.supervisor.wait_restarted(rolled, 0)
    fake.dies(0)
    fake.ready(3)
    fake.dies(1)
    assert fake.retired == [0, 1]
    assert fake.supervisor.wait_restarted(rolled, 0)
    assert fake.running == [0, 1]
    fake.now += slots.STABLE_AFTER
    fake.dies(2)
    assert fake.started[-1].version is NEW  # from now on


def test_a_restart_is_done_when_the_old_workers_get_no_more_work(fakes):
    fake = fakes(2)
    fake.ready(0, 1)
    fake.hears = False
    rolled = roll(fake)
    fake.ready(2, 3)
    assert fake.retired == [0, 1]
    assert not fake.supervisor.wait_restarted(rolled, 0)
    fake.event("retired", 0)
    assert not fake.supervisor.wait_restarted(rolled, 0)
    fake.dies(1)  # before the server heard of it
    assert fake.supervisor.wait_restarted(rolled, 0)


def test_a_restart_sleeps_while_a_successor_loads(fakes):
    fake = fakes(3)
    fake.ready(0, 1, 2)
    roll(fake)
    assert fake.timeouts[-1] is None
    fake.ready(3)
    assert fake.timeouts[-1] is None
    fake.fails(4)  # and is tried again before the third place has its turn
    assert fake.timeouts[-1] == pytest.approx(0.1)


def test_a_version_that_cannot_load_changes_nothing(fakes):
    fake = fakes(2)
    fake.ready(0, 1)
    rolled = roll(fake)
    fake.fails(2, "Traceback: new weights are missing")
    with pytest.raises(WorkerInitError, match="new weights are missing"):
        fake.supervisor.wait_restarted(rolled, 0)
    assert fake.running == [0, 1]
    assert fake.retired == []
    assert fake.failures == []
    fake.now += slots.STABLE_AFTER
    fake.dies(0)
    assert fake.started[-1].version is OLD
    assert fake.supervisor.wait_ready(0) is False  # the new one of the old version loads


def test_a_proven_version_is_tried_again_where_it_fails(fakes):
    fake = fakes(2)
    fake.ready(0, 1)
    rolled = roll(fake)
    fake.ready(2)
    fake.fails(3)
    assert fake.timeouts[-1] == pytest.approx(0.1)
    assert not rolled.done
    fake.passes(0.1)
    fake.ready(4)
    assert fake.supervisor.wait_restarted(rolled, 0)


def test_a_restart_that_gets_stuck_half_way_says_so_and_loses_nobody(fakes):
    fake = fakes(2)
    fake.ready(0, 1)
    rolled = roll(fake)
    fake.ready(2)
    for worker in range(3, 3 + pool.MAX_ATTEMPTS):
        fake.fails(worker)
        fake.passes(slots.MAX_DELAY)
    with pytest.raises(WorkerInitError, match="5 times in a row"):
        fake.supervisor.wait_restarted(rolled, 0)
    assert [p.version for p in fake.started if not p.ended] == [OLD, OLD, NEW]
    assert fake.retired == [0]
    fake.dies(0)
    fake.dies(1)
    assert fake.started[-1].version is NEW  # the old worker's place is filled again


def test_a_restart_revives_what_was_given_up(fakes):
    fake = fakes(1)
    for worker in range(pool.MAX_ATTEMPTS):
        fake.fails(worker)
        fake.passes(slots.MAX_DELAY)
    rolled = roll(fake)
    assert fake.started[-1].version is NEW
    fake.ready(pool.MAX_ATTEMPTS)
    assert fake.failures[-1] is None
    assert fake.supervisor.wait_restarted(rolled, 0)


def test_a_restart_ends_workers_of_the_old_version_that_never_get_ready(fakes):
    fake = fakes(1)
    rolled = roll(fake)
    assert fake.started[0].killed
    assert fake.started[1].version is NEW
    fake.event("gone", 0)
    fake.ready(1)
    assert fake.supervisor.wait_restarted(rolled, 0)
    assert fake.failures == []


def test_a_successor_is_not_stopped_by_the_death_of_whom_it_succeeds(fakes):
    fake = fakes(1)
    fake.ready(0)
    fake.now += slots.STABLE_AFTER
    rolled = roll(fake)
    fake.dies(0)
    fake.ready(1)
    fake.ready(2)
    assert fake.supervisor.wait_restarted(rolled, LONG)
    assert len(fake.running) == 1


def test_restarts_asked_for_together_follow_each_other(fakes):
    fake = fakes(1)
    fake.ready(0)
    first, second = roll(fake), roll(fake, Version("newest", b""))
    fake.ready(1)
    assert (first.done, second.done) == (True, False)
    fake.ready(2)
    assert second.done
    assert fake.started[2].version.model == "newest"


def test_its_version_is_the_last_that_was_asked_for_and_can_be_loaded(fakes):
    fake = fakes(1)
    fake.ready(0)
    roll(fake)
    assert fake.supervisor.version is NEW
    fake.fails(1)
    assert fake.supervisor.version is OLD
    roll(fake)
    fake.ready(2)
    assert fake.supervisor.version is NEW


def test_the_end_tells_those_who_wait(fakes, threads):
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


def test_one_that_stays_after_it_could_not_load_its_model_is_killed(fakes):
    fake = fakes(1)
    fake.event("init_failed", 0, "Traceback: no weights")
    fake.passes(0.1)
    fake.ready(1)
    assert fake.timeouts[-1] == pytest.approx(pool.GRACE - 0.1)
    assert not fake.started[0].killed
    fake.passes(pool.GRACE)
    assert fake.started[0].killed
    fake.event("gone", 0)
    assert fake.timeouts[-1] is None
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
