"""`service_streamer.extend`: what it exports, and a view of each kind of streamer."""

import gc
import inspect
import weakref

import pytest
from waits import eventually

from service_streamer import (
    Pipeline,
    RequestTimeout,
    Streamer,
    StreamerClosed,
    StreamerError,
    ThreadedStreamer,
    batched,
    extend,
)
from service_streamer.hub import HubView, ModelHub, ModelSpec, view_of


def double(items):
    return [2 * item for item in items]


MADE = {
    "threads": lambda: ThreadedStreamer(double, batch_size=4),
    "processes": lambda: Streamer(double, 4, mp_start_method="fork"),
    "pipeline": lambda: Pipeline(double, double),
    "batched": lambda: batched(batch_size=4)(double),
}


def test_what_is_exported_is_sorted_and_documented():
    assert extend.__all__ == sorted(extend.__all__)
    for name in extend.__all__:
        assert inspect.getdoc(getattr(extend, name)), name


@pytest.mark.parametrize("kind", MADE)
def test_a_view_shows_a_streamer_from_its_first_request_to_its_end(kind):
    streamer = MADE[kind]()
    view = extend.view_of(streamer)
    assert (view.state, view.is_open, view.submitted, view.streamer) == ("open", True, 0, streamer)
    streamer.predict([1, 2])
    assert (view.submitted, view.stats(timeout=1).completed) == (1, 1)
    assert view.name in repr(streamer)
    assert view.options.output == "items"
    assert view.verdict(streamer.stats()) == view.verdict(view.stats()) != ""
    assert not view.is_client
    assert view.own_queue() is None
    view.check_open()
    streamer.close()
    assert (view.state, view.is_open, view.has_stopped) == ("closed", False, True)
    with pytest.raises(StreamerClosed):
        view.check_open()


def test_streamers_have_no_public_members_for_monitors():
    assert [name for name in dir(ThreadedStreamer) if not name.startswith("_")] == [
        *("apredict", "apredict_one", "astream", "close", "configure", "destroy_workers"),
        *("explain", "is_native", "map", "predict", "predict_one", "record", "stats", "stream"),
        *("submit", "wait_ready"),
    ]


def test_a_view_of_a_connected_streamer_is_that_of_a_client():
    owner = Streamer(double, 4, mp_start_method="fork")
    with owner, Streamer.connect(owner.address) as client:
        view = extend.view_of(client)
        assert (view.is_client, extend.view_of(owner).is_client) == (True, False)
        client.predict([1])
        assert view.stats().completed == 1
        with pytest.raises(StreamerError):
            view.stats(timeout=0)


@pytest.mark.parametrize("value", [None, 3, double, ThreadedStreamer])
def test_what_is_no_streamer_is_refused_with_its_value(value):
    with pytest.raises(TypeError) as caught:
        extend.view_of(value)
    assert str(caught.value) == f"expected a streamer, not {value!r}"
    with pytest.raises(TypeError, match="expected a ModelHub or one of its models, not"):
        view_of(value)


def test_a_view_keeps_neither_the_streamer_nor_its_model_alive():
    class Model:
        def __call__(self, items):
            return items

    model = Model()
    streamer = ThreadedStreamer(model, batch_size=4)
    view, gone = extend.view_of(streamer), weakref.ref(model)
    del streamer, model
    gc.collect()
    assert (view.streamer, gone(), view.state, view.is_open) == (None, None, "closed", False)
    with pytest.raises(ReferenceError, match="Model"):
        view.stats()


def test_the_reader_of_the_statistics_outlives_the_streamer():
    streamer = ThreadedStreamer(double, batch_size=4)
    read = extend.view_of(streamer).reader()
    streamer.predict([1])
    streamer.close()
    del streamer
    assert read(0).completed == 1


@pytest.mark.not_redis
def test_the_batches_of_a_recording(streamers):
    streamer = streamers(double, batch_size=4)
    view = extend.view_of(streamer)
    (batch,) = view.batches(10, lambda seconds: streamer.predict([1, 2]) == [])
    assert (batch.items, batch.outcome, batch.begin < batch.end) == (2, "answered", True)
    assert view.batches(10, lambda seconds: True) == []


def test_the_outcome_of_a_future(streamers, gate):
    streamer = streamers(gate, batch_size=1)
    running, late = streamer.submit(["first"]), streamer.submit([1], timeout=0)
    assert extend.outcome_of(running) is None
    assert isinstance(late.exception(), RequestTimeout)
    assert extend.outcome_of(late).name == "expired"
    gate.open()
    running.result()
    assert extend.outcome_of(running).name == "completed"
    assert extend.outcome_of(running).since >= 0


class Span:
    context = None

    def __init__(self, ended, items):
        self._ended = ended
        self._items = items

    def end(self, end):
        self._ended.append((self._items, end.outcome, type(end.error).__name__, end.taken))


class Tracer:
    def __init__(self, span=Span):
        self.ended = []
        self._span = span

    def start(self, items, priority, tenant):
        return None if tenant == "none" else self._span(self.ended, items)

    def add_batch(self, batch):
        raise AssertionError


def test_a_tracer_gets_the_end_of_each_request(streamers):
    streamer = streamers(double, batch_size=4)
    view, tracer = extend.view_of(streamer), Tracer()
    assert view.start_tracing(tracer)
    assert (view.tracer, view.start_tracing(Tracer())) == (tracer, False)
    streamer.predict([1, 2], tenant="none")
    streamer.predict([1, 2])
    streamer.submit([1]).result()
    with pytest.raises(TypeError):
        streamer.predict([None, None, None])
    assert view.stop_tracing(tracer)
    assert (view.tracer, view.stop_tracing(tracer)) == (None, False)
    streamer.predict([1])
    eventually(lambda: len(tracer.ended) == 3)  # that of `submit` ends in a callback
    assert sorted(tracer.ended) == [
        (1, "completed", "NoneType", False),
        (2, "completed", "NoneType", True),
        (3, "failed", "TypeError", True),
    ]


class Timed(Span):
    def end(self, end):
        self._ended.append(end.times)


@pytest.mark.parametrize("kind", MADE)
def test_the_times_of_a_request_have_one_form(kind):
    tracer = Tracer(Timed)
    with MADE[kind]() as streamer:
        extend.view_of(streamer).start_tracing(tracer)
        streamer.predict([1, 2])
    ((queue_time, service_time, items, reason),) = tracer.ended
    assert queue_time >= 0
    assert service_time > 0
    assert (items, type(reason)) == ((None, type(None)) if kind == "pipeline" else (2, str))


def test_a_view_of_a_hub_shows_its_versions_and_new_streamers():
    spec = ModelSpec(double, batch_size=4)
    with ModelHub({"first": spec, "second": spec}) as hub:
        view, made = view_of(hub), []
        hub.load("first")
        ((version, streamer),) = view.watch(lambda *each: made.append(each))
        assert (version.model_name, version.number, version.streamer) == ("first", 1, streamer)
        assert (version.serves, version.is_degraded) == (True, False)
        assert version.status().state in HubView.STATES
        hub.load("second")
        assert [each.model_name for each, _ in made] == ["second"]
        assert extend.view_of(made[0][1]).submitted == 0
        assert [each.number for each in view.versions("second@1")] == [1]
        assert [each.model_name for each in view_of(hub["second"]).versions()] == ["second"]
        assert (view.obstacle(), view.is_closed, view.is_forked) == ("", False, False)
        assert view.options(hub["first"]).batch_size == 4
    assert view.is_closed
    with pytest.raises(StreamerClosed):
        view.check_open()
