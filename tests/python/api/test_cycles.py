"""What is closed and dropped is freed at once, also while the garbage collector is off."""

import asyncio
import contextlib
import gc
import weakref

import pytest
from descriptors import open_descriptors
from thread_models import double
from waits import LONG, eventually

from service_streamer import Pipeline, Stage, Streamer, ThreadedStreamer
from service_streamer._waiting import imports

pytestmark = pytest.mark.every_python


def pieces(batch):
    for _ in range(3):
        yield list(batch)


def use_streams(streamer):
    assert list(streamer.stream(1)) == [1, 1, 1]
    left = streamer.stream(1)
    assert next(left) == 1
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
    "a pipeline": (lambda: Pipeline(Stage(list, batch_size=8), Stage(double, batch_size=8)), use),
}


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


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_a_closed_streamer_waits_for_a_collection(kind):
    make, work = KINDS[kind]

    def run():
        with make() as streamer:
            work(streamer)

    run()  # imports, and threads that stay
    with without_collections():
        run()
        eventually(lambda: not our_garbage())


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


def test_500_closed_streamers_of_threads_keep_nothing():
    with without_collections():
        before, alive = open_descriptors(), []
        for _ in range(500):
            with ThreadedStreamer(double, 8) as streamer:
                assert streamer.predict([1], timeout=LONG) == [2]
                alive.append(weakref.ref(streamer._backend))
            del streamer
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
