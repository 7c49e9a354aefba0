"""What is closed and dropped is freed at once, also while the garbage collector is off."""

import asyncio
import contextlib
import gc
import itertools
import weakref

import pytest
from descriptors import open_descriptors
from free_threading import freed_at_once
from hub_models import Folder, Where
from step_models import Countdown, down
from thread_models import double
from waits import LONG, eventually

from service_streamer import Pipeline, Stage, Streamer, ThreadedStreamer
from service_streamer._waiting import imports
from service_streamer.hub import ModelHub, ModelSpec

pytestmark = pytest.mark.every_python


def pieces(batch):
    for _ in range(3):
        yield list(batch)


def use_streams(streamer):
    assert list(streamer.stream(1)) == [1, 1, 1]
    left = streamer.stream(1)
    assert next(left) == 1
    left.close()


def use_steps(streamer):
    assert streamer.predict([3], timeout=LONG) == [down(3)]
    assert list(streamer.stream(3)) == down(3)
    left = streamer.stream(3)
    assert next(left) == 3
    left.close()


def use(streamer):
    assert streamer.predict([1], timeout=LONG) == [2]
    assert streamer.submit([1]).result(LONG) == [2]
    assert asyncio.run(streamer.apredict([1])) == [2]
    streamer.explain()


def clients(streamer):
    use(streamer)
    with Streamer.connect(streamer.address) as client:
        use(client)
    streamer.resize(2)
    streamer.wait_ready(LONG)
    streamer.restart(timeout=LONG)


PROCESSES = {"mp_start_method": "fork"}
KINDS = {
    "threads": (lambda: ThreadedStreamer(double, 8), use),
    "streams of threads": (lambda: ThreadedStreamer(pieces, 8), use_streams),
    "processes": (lambda: Streamer(double, 8, **PROCESSES), clients),
    "streams of processes": (lambda: Streamer(pieces, 8, **PROCESSES), use_streams),
    "steps": (lambda: ThreadedStreamer(Countdown(), 8), use_steps),
    "steps in processes": (lambda: Streamer(Countdown, 8, **PROCESSES), use_steps),
    "a pipeline": (lambda: Pipeline(Stage(list, batch_size=8), Stage(double, batch_size=8)), use),
    "a hub": (
        lambda: ModelHub({name: ModelSpec(double, batch_size=8) for name in "ab"}, max_loaded=1),
        lambda hub: [use(hub[name]) for name in "aba"],
    ),
    "a hub with processes": (
        lambda: ModelHub({"a": ModelSpec(Countdown, batch_size=8, **PROCESSES)}),
        lambda hub: use_steps(hub["a"]),
    ),
    "models that share a process": (
        lambda: ModelHub({"a": shared("a"), "b": shared("b")}, workers=1),
        lambda hub: [hub.predict(name, [1], timeout=LONG) for name in "ab"],
    ),
}


def shared(name):
    return ModelSpec(Where, batch_size=8, shared=True, model_init_args=[name])


@contextlib.contextmanager
def without_collections():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.collect()


def our_garbage():
    gc.garbage.clear()
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    return [each for each in gc.garbage if type(each).__module__.startswith("service_streamer")]


def check(run):
    """Run it without collections. It leaves no object of ours, and no descriptor."""
    run()  # imports, and threads that stay
    with without_collections():
        before = open_descriptors()
        run()
        eventually(lambda: not our_garbage() and open_descriptors() <= before)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_a_closed_streamer_waits_for_a_collection(kind):
    make, work = KINDS[kind]

    def run():
        with make() as streamer:
            work(streamer)

    check(run)


def test_nothing_of_a_closed_hub_of_a_folder_waits_for_a_collection(tmp_path):
    names = map(str, itertools.count())

    def run():
        (root := tmp_path / next(names)).mkdir()
        folder = Folder(root)
        folder.add(1)
        with ModelHub.watch(root / "models") as hub:
            assert hub.predict("times", [1], timeout=LONG) == [1]
            folder.add(2)
            eventually(lambda: hub.predict("times", [1], timeout=LONG) == [2])

    check(run)


@pytest.mark.over_redis
@pytest.mark.parametrize(
    ("model", "work"), [(double, use), (pieces, use_streams)], ids=["requests", "streams"]
)
def test_nothing_of_a_closed_client_and_worker_waits_for_a_collection(
    shared_redis_server, model, work
):
    from redis_backend import RedisPair

    def run():
        pair = RedisPair(shared_redis_server, model, 8)
        work(pair.streamer)
        pair.close()

    check(run)


class Item:
    """Can be referred to weakly."""


def fail(batch):
    raise ValueError("it is wrong")


async def awaited(streamer, item):
    return await streamer.submit([item])


async def read(streamer, item):
    async for _ in streamer.astream(item):
        pass


async def failing(coroutine):
    with contextlib.suppress(ValueError):
        await coroutine


WAYS = {
    "predict": lambda streamer, item: streamer.predict([item]),
    "result": lambda streamer, item: streamer.submit([item]).result(),
    "stream": lambda streamer, item: list(streamer.stream(item)),
    "apredict": lambda streamer, item: streamer.apredict([item]),
    "apredict_one": lambda streamer, item: streamer.apredict_one(item),
    "await": awaited,
    "astream": read,
}
FAILING = {
    "threads": lambda: ThreadedStreamer(fail, 8),
    "processes": lambda: Streamer(fail, 8, **PROCESSES),
    "a pipeline": lambda: Pipeline(Stage(list, batch_size=8), Stage(fail, batch_size=8)),
    "a hub": lambda: ModelHub({"a": ModelSpec(fail, batch_size=8)}),
}


@freed_at_once
@pytest.mark.parametrize("kind", FAILING)
def test_a_request_that_failed_is_freed_at_once(kind):
    """The traceback of its exception refers to frames, which must not refer to the exception."""

    def ask(way):
        item = Item()
        with contextlib.suppress(ValueError):
            found = WAYS[way](streamer, item)
            asyncio.run(failing(found))
        return weakref.ref(item)

    with FAILING[kind]() as made:
        streamer = made["a"] if kind == "a hub" else made
        with without_collections():
            asked = {way: ask(way) for way in WAYS}
            eventually(lambda: [way for way, item in asked.items() if item()] == [])


def test_many_closed_streamers_keep_no_descriptor_engine_or_model():
    def open_and_close():
        streamer = Streamer(double, 8, **PROCESSES)
        assert streamer.predict([1], timeout=LONG) == [2]
        parts = streamer._peer, streamer._peer.model, streamer._peer._supervisor
        streamer.close()
        return streamer, [weakref.ref(each) for each in parts]

    kept = [open_and_close()[0]]
    with without_collections():
        before = open_descriptors()
        alive = []
        for _ in range(20):
            streamer, parts = open_and_close()
            kept.append(streamer)  # closing it is enough for its descriptors
            alive += parts
        assert open_descriptors() == before
        assert streamer.stats().completed == 1
        del streamer
        kept.clear()
        eventually(lambda: not any(part() for part in alive))


class Model:
    def __call__(self, batch):
        return double(batch)


def test_500_closed_streamers_of_threads_keep_nothing():
    with without_collections():
        before, alive = open_descriptors(), []
        for _ in range(500):
            model = Model()
            with ThreadedStreamer(model, 8) as streamer:
                assert streamer.predict([1], timeout=LONG) == [2]
                assert streamer.submit([1], timeout=LONG).result() == [2]  # starts the timer
                alive += map(weakref.ref, (streamer._backend, model))
            del streamer, model
        assert open_descriptors() == before
        eventually(lambda: not any(part() for part in alive))


def test_a_look_for_imports_keeps_no_frame():
    class Local:
        pass

    def look():
        local = Local()
        imports.obstacle()
        return weakref.ref(local)

    with without_collections():
        assert look()() is None
