"""Models make room for each other, and no request fails of it."""

import contextlib
import random
import threading
import time
import weakref

import pytest
from thread_models import Gate, double
from waits import LONG, eventually

from service_streamer import StreamerClosed, ThreadedStreamer
from service_streamer._base import options as _options
from service_streamer.hub import ModelSpec, ModelTooLarge, NoRoomForModel, _memory
from service_streamer.hub._loading import budget as _budget
from service_streamer.hub._loading import making as _making
from service_streamer.hub._memory import Size


def loaded(hub):
    return {
        name
        for name, model in hub.status().items()
        if any(version.state == "ready" for version in model.versions.values())
    }


@pytest.fixture
def sizes(monkeypatch):
    """The sizes of models, by the factory."""
    sizes = {}
    monkeypatch.setattr(_memory, "begin", lambda: lambda streamer: sizes[streamer])
    return sizes


@pytest.fixture
def sized(sizes):
    def make(size, gpu=0):
        def factory():
            streamer = ThreadedStreamer(double, 8)
            sizes[streamer] = Size(size, gpu)
            return streamer

        return ModelSpec.factory(factory)

    return make


def test_the_least_recently_used_makes_room(hubs, factories):
    hub = hubs({name: factories() for name in "abc"}, max_loaded=2)
    for name in "aba":
        hub.predict(name, [1])
    hub.predict("c", [1])
    assert loaded(hub) == {"a", "c"}


def test_a_pinned_model_stays(hubs, factories):
    hub = hubs({name: factories() for name in "abc"}, max_loaded=1)
    hub.predict("a", [1])
    hub.pin("a")
    with pytest.raises(NoRoomForModel, match=r"no room for model b@1: .* 1 of 1 models; unpin"):
        hub.predict("b", [1])
    assert loaded(hub) == {"a"}
    hub.unpin("a")
    hub.load("b")
    assert loaded(hub) == {"b"}


def test_a_request_that_comes_while_a_model_drains_waits(hubs, factories, threads):
    gate = Gate()
    slow = factories(gate)
    hub = hubs({"slow": slow, "other": factories()}, max_loaded=1)
    first = hub.submit("slow", [1])
    gate.wait_entered()
    other = hub.submit("other", [2])
    eventually(lambda: hub.status()["slow"].versions[1].state == "draining")
    late = hub.submit("slow", [3])
    assert not first.done()
    gate.open()
    assert (first.result(), other.result(), late.result()) == ([2], [4], [6])
    assert slow.loads == 2


def test_no_request_fails_while_models_change_places(hubs, factories, threads):
    hub = hubs({name: factories() for name in "abcd"}, max_loaded=2)

    def ask(seed):
        choose = random.Random(seed)
        for number in range(50):
            assert hub.predict(choose.choice("abcd"), [number]) == [2 * number]
            assert hub.submit(choose.choice("abcd"), [number]).result() == [2 * number]

    for seed in range(8):
        threads.run(ask, seed)
    assert threads.join() == [None] * 8
    assert len(loaded(hub)) <= 2


def test_a_budget_of_memory(hubs, sized):
    models = {"a": sized(4000), "b": sized(5000), "c": sized(6000)}
    hub = hubs(models, memory_budget="10kB")
    hub.predict("a", [1])
    hub.predict("b", [1])
    assert loaded(hub) == {"a", "b"}
    hub.predict("c", [1])  # its size is known afterwards
    assert loaded(hub) == {"c"}
    hub.predict("a", [1])
    assert loaded(hub) == {"a", "c"}
    assert hub.status()["c"].versions[1].memory == 6000


def test_a_budget_of_gpu_memory(hubs, sized):
    hub = hubs({"a": sized(0, 600), "b": sized(0, 500)}, gpu_memory_budget=1000)
    hub.predict("a", [1])
    hub.predict("b", [1])
    assert loaded(hub) == {"b"}
    assert hub.status()["b"].versions[1].gpu_memory == 500


def test_a_model_that_is_too_large_is_not_tried_again(hubs, sized, sizes):
    hub = hubs({"big": sized(2000)}, memory_budget=1000)
    message = "model big@1 needs 2 kB of memory, more than the budget of 1 kB"
    for _ in range(2):
        with pytest.raises(ModelTooLarge, match=message):
            hub.predict("big", [1])
    assert len(sizes) == 1
    with pytest.raises(ModelTooLarge, match=message):
        hub.load("big")
    assert len(sizes) == 2


def test_pinned_models_leave_too_little_memory(hubs, sized):
    hub = hubs({"a": sized(800), "b": sized(300)}, memory_budget=1000)
    hub.pin("a")
    hub.load("a")
    with pytest.raises(NoRoomForModel, match="800 bytes of 1 kB of memory"):
        hub.load("b")
    assert loaded(hub) == {"a"}


def test_loads_of_unknown_size_do_not_wait_for_each_other(hubs, factories, monkeypatch):
    monkeypatch.setattr(_memory, "begin", lambda: lambda streamer: Size(600))
    monkeypatch.setattr(_making, "_alone", lambda spec, lock: contextlib.nullcontext())
    first, second = factories(), factories()
    hub = hubs({"first": first, "second": second}, memory_budget=1000)
    hub.load("first")
    hub.unload("first")
    first.gate.clear()
    one = hub.submit("first", [1])
    eventually(lambda: first.loads == 2)
    two = hub.submit("second", [2])
    version = hub._models["second"].versions[1]
    eventually(lambda: version.size is not None and not version.holds_room)  # it made room
    first.gate.set()
    assert (one.result(), two.result()) == ([2], [4])
    assert second.loads == 2  # the other time when the first one was ready
    assert loaded(hub) == {"second"}


def test_a_full_queue_is_drained_too(hubs, factories, threads):
    gate = Gate()
    slow = factories(gate, max_queue=1)
    hub = hubs({"slow": slow, "other": factories()}, max_loaded=1)
    hub.load("slow")
    for number in range(20):
        threads.run(hub.predict, "slow", [number])
    gate.wait_entered()
    eventually(lambda: hub["slow"].stats().waiting_requests > 0)
    other = hub.submit("other", [1])
    eventually(lambda: hub.status()["slow"].versions[1].state == "draining")
    gate.open()
    assert threads.join() == [[2 * number] for number in range(20)]
    assert other.result() == [2]


def test_models_that_never_return_keep_only_their_room(hubs, factories, monkeypatch):
    monkeypatch.setattr(_budget, "PATIENCE", 0.05)
    gates = {f"stuck-{number}": Gate() for number in range(3)}  # more than loader threads
    models = {name: factories(gate) for name, gate in gates.items()}
    hub = hubs({**models, **{name: factories() for name in "abc"}}, max_loaded=4)
    futures = [hub.submit(name, [1]) for name in gates]
    for gate in gates.values():
        gate.wait_entered()
    for name in "abcab":
        assert hub.predict(name, [1], timeout=LONG) == [2]
    states = [hub.status()[name].versions[1].state for name in gates]
    assert states == ["draining"] * 3
    assert len(loaded(hub)) == 1
    assert not any(future.done() for future in futures)
    hub.close(timeout=0.1)
    for future in futures:
        with pytest.raises(StreamerClosed):
            future.result(timeout=0)
    for gate in gates.values():
        gate.open()


def test_thrashing_is_counted_and_logged_once(hubs, factories, caplog):
    hub = hubs({name: factories() for name in "ab"}, max_loaded=1)
    for name in "ababab":
        hub.predict(name, [1])
    assert hub.status()["a"].versions[1].reloads == 2
    warnings = [each for each in caplog.records if "within a minute" in each.getMessage()]
    assert [each.streamer for each in warnings] == ["a@1", "b@1"]


def test_the_growth_of_this_process_is_measured(hubs):
    kept = []

    def factory():
        kept.append(bytearray(b"x" * 50_000_000))
        return ThreadedStreamer(double, 8)

    hub = hubs({"large": ModelSpec.factory(factory)})
    hub.load("large")
    assert 40e6 < hub.status()["large"].versions[1].memory < 150e6


def test_sizes_are_numbers_or_texts():
    assert _options.memory("x", "12GB") == 12 * 10**9
    assert _options.memory("x", "1.5 MiB") == 3 * 2**19
    assert _options.memory("x", 1000) == 1000


def test_requests_are_in_flight_while_status_is_read(hubs, factories):
    hub = hubs({name: factories() for name in "ab"}, max_loaded=1)
    stop = threading.Event()
    reader = threading.Thread(target=lambda: [hub.status() for _ in iter(stop.is_set, True)])
    reader.start()
    try:
        for name in "ab" * 20:
            hub.predict(name, [1])
    finally:
        stop.set()
        reader.join()
    assert abs(time.time() - hub.status()["b"].versions[1].last_use) < 60


def test_a_model_is_freed_before_another_one_is_measured(hubs, monkeypatch):
    models, freed = [], []

    def factory():
        model = Gate()
        models.append(weakref.ref(model))
        return ThreadedStreamer(model, 8)

    def begin():
        freed.append([model() is None for model in models])
        return lambda streamer: Size(1)

    monkeypatch.setattr(_memory, "begin", begin)
    hub = hubs({name: ModelSpec.factory(factory) for name in "ab"}, max_loaded=1)
    for name in "aba":
        hub.load(name)
    assert freed == [[], [True], [True, True]]


def test_a_model_that_is_loaded_again_is_not_smaller(hubs, factories, monkeypatch):
    sizes = iter([4000, 0])
    monkeypatch.setattr(_memory, "begin", lambda: lambda streamer: Size(next(sizes)))
    hub = hubs({"model": factories()})
    for _ in range(2):
        hub.load("model")
        assert hub.status()["model"].versions[1].memory == 4000
        hub.unload("model")


def test_an_unloaded_model_is_freed(hubs):
    models = []

    def factory():
        model = Gate()
        model.open()
        models.append(weakref.ref(model))
        return ThreadedStreamer(model, 8)

    hub = hubs({name: ModelSpec.factory(factory) for name in "ab"}, max_loaded=1)
    future = hub.submit("a", [1])  # waits for the load
    assert (future.result(), hub["a"].submit([2]).result()) == ([2], [4])
    hub.predict("b", [1])
    eventually(lambda: models[0]() is None)
