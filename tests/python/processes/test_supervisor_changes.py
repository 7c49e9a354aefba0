"""The supervisor: resize and restart."""

import pytest
from fake_supervisor import NEW, OLD
from waits import LONG

from service_streamer import WorkerInitError
from service_streamer._models.model import Model
from service_streamer._processes import pool, slots
from service_streamer._processes.start import ModelVersion

pytest_plugins = ["supervisor_fixtures"]


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


def test_a_successor_that_dies_while_it_loads_is_tried_again_once(fakes):
    fake = fakes(1)
    fake.ready(0)
    rolled = roll(fake)
    fake.dies(1)
    assert fake.running == [0]
    assert fake.timeouts[-1] == pytest.approx(slots.FIRST_DELAY)
    fake.passes(slots.FIRST_DELAY)
    fake.dies(2)
    with pytest.raises(WorkerInitError, match="SIGSEGV"):
        fake.supervisor.wait_restarted(rolled, 0)
    rolled = roll(fake)
    fake.dies(3)
    fake.passes(slots.FIRST_DELAY)
    fake.ready(4)
    assert fake.supervisor.wait_restarted(rolled, 0)
    assert fake.retired == [0]


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


def test_a_restart_that_gets_stuck_says_so_and_loses_no_request(fakes):
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


def test_a_restart_ends_workers_of_the_old_version_that_never_get_ready(fakes):
    fake = fakes(1)
    rolled = roll(fake)
    assert fake.started[0].killed
    assert fake.started[1].version is NEW
    fake.event("gone", 0)
    fake.ready(1)
    assert fake.supervisor.wait_restarted(rolled, 0)
    assert fake.failures == []


def test_a_successor_stays_when_its_predecessor_dies(fakes):
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
    first, second = roll(fake), roll(fake, ModelVersion(Model("newest"), b""))
    fake.ready(1)
    assert (first.done, second.done) == (True, False)
    fake.ready(2)
    assert second.done
    assert fake.started[2].version.model == Model("newest")


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
