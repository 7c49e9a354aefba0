"""How the owner of a RayStreamer calls its replicas, and changes their number. No cluster."""

import threading
import types
from concurrent.futures import ThreadPoolExecutor

import pytest
from waits import LONG

pytest.importorskip("ray")

from ray.exceptions import GetTimeoutError, OwnerDiedError, RayTaskError

from service_streamer import WorkerLost
from service_streamer._base.grouping import grouping
from service_streamer._base.model_errors import NotRun
from service_streamer._base.options import Options
from service_streamer._engine.backend import make_engine
from service_streamer._ray import calls
from service_streamer._ray.owner import pool
from service_streamer._ray.replicas import meter
from service_streamer._ray.replicas.meter import TICK, Meter
from service_streamer._ray.replicas.scaling import Load, Scaling
from service_streamer._ray.settings import RaySettings
from service_streamer._waiting.threads import Condition

UP_WITHIN = 2.0  # s after a burst began


class HalfOfThem:
    """In the place of `Members`: two of four have died, and are not started again yet."""

    def __init__(self, *_):
        self.target = 4
        self.closing = False
        self.changed = Condition()

    def start(self):
        pass

    def stop(self):
        self.closing = True
        self.changed.notify()

    def resize(self, target):
        self.target = target

    def count(self):
        return 2

    def any_idle(self):
        return False


@pytest.fixture
def replicas(monkeypatch):
    """A `Pool` for 1 to 8 replicas, of which there are too few."""
    monkeypatch.setattr(pool, "Members", HalfOfThem)
    options = Options(batch_size=8)
    engine = make_engine(options, workers=1, start=lambda: None, start_timer=lambda: None)
    settings = RaySettings(replicas=(1, 8))
    made = pool.Pool(engine, "model", b"", options, False, settings, lambda: None)
    monkeypatch.setattr(made._meter, "load", lambda _, count: Load(0.0, 0.0, 0.0, count, 9))
    yield made
    made.stop()
    engine.close(False)


def test_the_death_of_replicas_is_no_reason_for_fewer(replicas):
    replicas._review()
    assert replicas.members.target == 4


def test_a_decision_does_not_undo_a_resize(replicas, monkeypatch):
    decides, go = threading.Event(), threading.Event()

    def decide(load):
        decides.set()
        assert go.wait(LONG)
        return 2

    monkeypatch.setattr(replicas._scaling, "decide", decide)
    threads = [threading.Thread(target=replicas._review)]
    threads[0].start()
    assert decides.wait(LONG)
    threads.append(threading.Thread(target=replicas.resize, args=((4, 4),)))
    threads[1].start()
    threads[1].join(0.1)  # a resize that does not wait for the decision is done
    go.set()
    for thread in threads:
        thread.join(LONG)
    assert replicas.members.target == 4


def test_a_burst_adds_replicas_when_it_is_looked_at_a_second_time(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(meter, "time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    measured, rule = Meter(batch_size=8), Scaling(1, 8, target=0.05)
    stats = {"queue_time": {"total": 0.0, "buckets": {}}, "items": 0, "queued_items": 640}
    assert measured.load(stats, 1) is None
    clock[0] += TICK
    assert rule.decide(measured.load(stats, 1)) == 2
    assert 2 * TICK < UP_WITHIN


def test_a_heavy_batch_at_one_replica_leaves_room_at_another():
    heavy = grouping(None, lambda item: 20, 20, False, False, None)
    options = Options(batch_size=8, policy="greedy", grouping=heavy)
    engine = make_engine(options, workers=2, start=lambda: None, start_timer=lambda: None)
    engine.submit([0, 1, 2], None, 0)
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        first = one.submit(engine.next_batch, 0).result()
        assert one.submit(engine.next_batch, 0).result() is None
        second = other.submit(engine.next_batch, 0).result()
        assert [len(first), len(second)] == [1, 1]
        first.complete([0])
        assert len(one.submit(engine.next_batch, 0).result()) == 1
    engine.close(False)


@pytest.fixture
def call_that_fails(monkeypatch):
    """Calls a replica; Ray raises in its process, outside of the model."""

    handle = types.SimpleNamespace(predict=types.SimpleNamespace(remote=lambda *_: None))

    def call(cause):
        def get(*_, **__):
            raise RayTaskError("predict", f"{cause}", cause).as_instanceof_cause()

        monkeypatch.setattr(calls.ray, "get", get)
        calls.call(handle, [], None)

    return call


@pytest.mark.parametrize("cause", [OwnerDiedError("00" * 28, None, ""), GetTimeoutError("late")])
def test_an_error_in_a_replica_is_not_the_death_of_it(call_that_fails, cause):
    with pytest.raises(NotRun) as caught:
        call_that_fails(cause)
    assert isinstance(caught.value.error, WorkerLost)
    assert "a replica could not run the batch" in str(caught.value.error)


def test_a_replica_that_has_lost_its_node_is_as_good_as_dead(call_that_fails):
    with pytest.raises(calls.Gone, match="Broken pipe"):
        call_that_fails(BrokenPipeError("Broken pipe"))
