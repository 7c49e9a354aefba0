"""A model is loaded once, and a failed load is raised to all that wait for it."""

import asyncio
import gc
import sys
import threading
import weakref

import pytest
from thread_models import double
from waits import LONG, eventually

from service_streamer import CancelledError, RequestTimeout, StreamerClosed
from service_streamer.hub import ModelLoadError, ModelSpec, _memory
from service_streamer.hub._loading import loader as _loader
from service_streamer.hub._loading.jobs import Jobs


@pytest.fixture
def held(hubs, factories):
    """A hub whose model is being loaded until its gate is opened."""
    factory = factories()
    factory.gate.clear()
    hub = hubs({"model": factory})
    first = hub.submit("model", [0])
    factory.wait_entered()
    return hub, factory, first


def waiting(hub):
    return hub.status()["model"].versions[1].waiting


def test_callers_of_all_kinds_wait_for_one_load(held, threads):
    hub, factory, first = held
    for number in range(100):
        threads.run(hub.predict, "model", [number])
    eventually(lambda: waiting(hub) == 101)

    async def main():
        tasks = [asyncio.ensure_future(hub.apredict("model", [number])) for number in range(10)]
        tasks.append(asyncio.ensure_future(asyncio.wrap_future(hub.submit("model", [10]))))
        await asyncio.sleep(0)  # the loop goes on
        factory.gate.set()
        return await asyncio.gather(*tasks)

    assert asyncio.run(main()) == [[2 * number] for number in range(11)]
    assert threads.join() == [[2 * number] for number in range(100)]
    assert first.result() == [0]
    assert factory.loads == 1


def test_a_timeout_includes_the_load_which_goes_on(held):
    hub, factory, first = held
    with pytest.raises(RequestTimeout):
        hub.predict("model", [1], timeout=0.01)
    with pytest.raises(RequestTimeout):
        hub.submit("model", [1], timeout=0.01).result()
    with pytest.raises(RequestTimeout, match=r"was not loaded within 0\.01 s"):
        hub.load("model", timeout=0.01)
    factory.gate.set()
    assert first.result() == [0]
    assert (factory.loads, hub["model"].stats().submitted) == (1, 1)


def test_requests_that_have_ended_do_not_wait_on(held):
    hub, factory, first = held
    version = hub._models["model"].versions[1]
    for number in range(1000):
        hub.submit("model", [number]).cancel()
    eventually(lambda: hub.status()["model"].versions[1].waiting == 1)
    assert len(version.waiting) < 200
    factory.gate.set()
    assert first.result() == [0]


def test_a_request_can_be_cancelled_while_it_waits(held):
    hub, factory, first = held
    assert first.cancel()
    with pytest.raises(CancelledError):
        first.result()
    second = hub.submit("model", [1])
    factory.gate.set()
    assert second.result() == [2]
    assert hub["model"].stats().submitted == 1


def test_a_failed_load_is_raised_to_all(held, threads):
    hub, factory, first = held
    factory.error = ValueError("no such file")
    for _ in range(5):
        threads.run(hub.predict, "model", [1])
    eventually(lambda: waiting(hub) == 6)
    factory.gate.set()
    errors = [*threads.join(), first.exception()]
    for error in errors:
        assert isinstance(error, ModelLoadError)
        assert "model@1 cannot be loaded: ValueError: no such file" in str(error)
        assert isinstance(error.__cause__, ValueError)
    assert len(set(map(id, errors))) == 6
    status = hub.status()["model"].versions[1]
    assert (status.state, status.error) == ("failed", str(errors[0]))


def test_the_pause_after_a_failure_grows(hubs, factories, monkeypatch):
    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(_loader, "time", clock)
    factory = factories()
    factory.error = ValueError("no such file")
    hub = hubs({"model": factory})

    def ask():
        with pytest.raises(ModelLoadError):
            hub.predict("model", [1])
        return factory.loads

    assert (ask(), ask()) == (1, 1)
    for loads, pause in enumerate([1, 2, 4, 8, 16, 32, 60, 60], start=1):
        clock.now += pause - 0.01
        assert ask() == loads
        clock.now += 0.02
        assert ask() == loads + 1
    factory.error = None
    hub.load("model")  # at once
    assert hub.predict("model", [1]) == [2]
    assert hub.status()["model"].versions[1].error is None


def test_closing_ends_requests_that_wait(held):
    hub, factory, first = held
    closing = threading.Thread(target=hub.close)
    closing.start()
    eventually(lambda: hub._loader.closed)
    factory.gate.set()
    closing.join(LONG)
    assert not closing.is_alive()
    with pytest.raises(StreamerClosed):
        first.result()


def test_a_forgotten_hub_ends_its_streamers(hubs, factories):
    from service_streamer.hub import ModelHub, ModelSpec

    hub = ModelHub({"model": ModelSpec.factory(factories())})
    hub.predict("model", [1])
    streamer = weakref.ref(hub._models["model"].serving.version.streamer)
    engine = streamer()._engine
    del hub

    def ended():
        gc.collect()
        return streamer() is None and engine.closed()

    eventually(ended)


def test_greenlets_wait_for_a_load(child):
    pytest.importorskip("gevent")
    done = child(
        """
from gevent import monkey; monkey.patch_all()
import gevent
from gevent.event import Event
from service_streamer import ThreadedStreamer
from service_streamer._waiting.threads import original
from service_streamer.hub import ModelHub, ModelSpec

gate = original("_thread", "allocate_lock")()
gate.acquire()
def make():
    with gate:
        return ThreadedStreamer(list, 8)
hub = ModelHub({name: ModelSpec.factory(make) for name in "ab"}, max_loaded=1)
asked = [gevent.spawn(hub.predict, name, [name]) for name in "abab"]
gevent.sleep(0)
gate.release()  # this greenlet goes on while the others wait
gevent.joinall(asked)
print([each.value for each in asked], list(hub["a"].stream(1)), hub.submit("b", [2]).result())
hub.unload("b")
hub.close()
"""
    )
    assert done.stdout == "[['a'], ['b'], ['a'], ['b']] [1] [2]\n"


def test_a_process_whose_name_is_cut_within_a_letter_loads_a_model(child):
    done = child(
        """
from pathlib import Path
from service_streamer import ThreadedStreamer
from service_streamer.hub import ModelHub, ModelSpec

Path("/proc/self/comm").write_bytes("modèle".encode()[:4])
with ModelHub({"a": ModelSpec.factory(lambda: ThreadedStreamer(list, 8))}) as hub:
    print(hub.predict("a", [1]))
"""
    )
    assert done.stdout == "[1]\n"


def test_an_error_of_an_observer_stops_no_load(hubs, caplog):
    def observe(version, streamer):
        raise OSError("the disk is full")

    hub = hubs({"double": ModelSpec(double, batch_size=8)})
    hub._loader.observers.append(observe)
    assert hub.predict("double", [1]) == [2]
    hub.close(timeout=LONG)
    assert "metrics of model double@1: the disk is full" in caplog.text


def test_a_job_that_raises_stops_no_other(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "excepthook", lambda *error: told.append(error[1]))
    jobs = Jobs(1, "job")
    done = threading.Event()
    jobs.start(lambda: 1 // 0)
    jobs.start(done.set)
    assert done.wait(LONG)
    assert jobs.wait_ended(LONG)
    assert isinstance(told[0], ZeroDivisionError)


def test_each_unloaded_model_of_this_process_gives_its_memory_back(hubs, factories, monkeypatch):
    trims = []
    monkeypatch.setattr(_memory, "trim", lambda: trims.append(None))
    models = {"here": factories(), "there": ModelSpec(double, batch_size=8, processes=True)}
    hub = hubs(models)
    for count in range(1, 4):
        hub.load("here", LONG)
        hub.unload("here")
        assert len(trims) == count
    hub.load("there", LONG)
    hub.unload("there")  # its processes have ended
    assert len(trims) == 3
