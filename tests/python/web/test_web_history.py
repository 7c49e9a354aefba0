"""/history: what happened before a page was opened, kept by nothing that runs without requests."""

import gc
import json
import threading

import pytest
from process_models import Version
from scripts import SUPPORT
from thread_models import double
from waits import LONG, eventually

from service_streamer import RedisStreamer, ThreadedStreamer, web
from service_streamer._waiting.threads import NativeThread
from service_streamer.web import _samples
from service_streamer.web._samples import Samples, sample_of
from service_streamer.web._targets import StreamerTarget

pytest_plugins = ["web_fixtures"]

THREAD = "service-streamer-samples"


@pytest.fixture
def streamer():
    with ThreadedStreamer(double, 8) as streamer:
        yield streamer


@pytest.fixture
def quick(monkeypatch):
    """A hundred samples a second."""
    monkeypatch.setattr(_samples, "PERIOD", 0.01)


def samples_of(client, name="default"):
    return [each["stats"] for each in client.get("/history").json[name]]


def test_requests_before_a_page_was_opened_are_kept(serves, streamer):
    client = serves(streamer)
    for _ in range(3):
        streamer.predict([1, 2])
    eventually(lambda: [each["completed"] for each in samples_of(client)][-1:] == [3])
    (*_, sample) = samples_of(client)
    stats = json.loads(json.dumps(sample_of(streamer.stats())))
    assert sample.keys() == stats.keys()
    assert {**sample, "uptime": 0} == {**stats, "uptime": 0}
    assert sample["last_10s"]["latency"]["count"] == 3


def test_nothing_runs_before_the_first_request_and_after_the_last(
    serves_asgi, streamer, started, quick
):
    client = serves_asgi(streamer)
    assert samples_of(client) == []
    assert started(THREAD) == []
    for n in range(1, 4):  # each time anew
        streamer.predict([n])
        eventually(lambda: started(THREAD) == [])
        kept = samples_of(client)
        assert kept[-1]["completed"] == n
        assert {*range(1, n)} <= {each["completed"] for each in kept} <= {*range(n + 1)}


@pytest.mark.not_redis
def test_a_long_batch_is_followed_to_its_end(serves_asgi, streamers, gate, started, quick):
    streamer = streamers(gate)
    client = serves_asgi(streamer)
    future = streamer.submit([1])
    gate.wait_entered()
    count = len(samples_of(client))
    eventually(lambda: len(samples_of(client)) >= count + 5)
    assert samples_of(client)[-1]["running_items"] == 1
    gate.open()
    future.result(LONG)
    eventually(lambda: started(THREAD) == [])
    assert samples_of(client)[-1]["running_items"] == 0


def test_the_memory_is_bounded(streamer, monkeypatch):
    monkeypatch.setattr(_samples, "SECONDS", 3)
    samples = Samples({"one": StreamerTarget(streamer, None, False)})
    for n in range(10):
        streamer.predict([n])
        samples.take()
    kept = json.loads(samples.as_json())["one"]
    assert len(kept) == 3
    assert kept[-1]["stats"]["completed"] == 10


def test_each_worker_process_is_in_the_samples(serves_asgi, process_streamers):
    streamer = process_streamers(Version, worker_num=2, model_init_args=["new"])
    streamer.wait_ready(LONG)
    client = serves_asgi(streamer)
    streamer.predict([1])
    eventually(lambda: samples_of(client))
    (*_, sample) = samples_of(client)
    pids = {worker.pid for worker in streamer.stats().worker_processes}
    assert {each["pid"] for each in sample["worker_processes"]} == pids


def test_a_closed_streamer_and_a_forgotten_page_end_the_thread(streamer, started, quick):
    pages = [web.create_app(streamer), web.create_app({"again": streamer})]
    streamer.predict([1])
    eventually(lambda: len(started(THREAD)) in (0, 1, 2))
    del pages
    gc.collect()
    eventually(lambda: started(THREAD) == [])
    web.create_app(streamer)
    streamer.close()
    eventually(lambda: started(THREAD) == [])


def test_a_target_that_cannot_notice_requests_is_left_alone_after_a_while(
    streamer, started, quick, monkeypatch
):
    monkeypatch.setattr(_samples, "UNNOTICED", 12)
    target = StreamerTarget(streamer, None, False)
    monkeypatch.setattr(target, "call_at_next_request", lambda function: False)
    samples = Samples({"one": target})
    for n in (1, 2):  # each time anew
        streamer.predict([n])
        samples.as_json()
        assert len(started(THREAD)) == 1
        eventually(lambda: started(THREAD) == [])
        assert json.loads(samples.as_json())["one"][-1]["stats"]["completed"] == n
        eventually(lambda: started(THREAD) == [])


def test_a_ctrl_c_or_an_error_leaves_the_samples_to_the_next_thread(streamer, quick, monkeypatch):
    class Interrupted(NativeThread):
        def start(self):
            raise KeyboardInterrupt

    samples = Samples({"one": StreamerTarget(streamer, None, False)})
    with monkeypatch.context() as patch:
        patch.setattr(_samples, "NativeThread", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            samples.wake()
    with monkeypatch.context() as patch:
        patch.setattr(Samples, "_goes_on", lambda samples: 1 / 0)
        samples._running.acquire()
        with pytest.raises(ZeroDivisionError):
            _samples._run(lambda: samples)
    assert not samples._running.locked()
    streamer.predict([1])
    eventually(lambda: json.loads(samples.as_json())["one"])


def test_no_broker_is_asked_for_a_sample(port):
    pytest.importorskip("redis")
    with RedisStreamer(f"127.0.0.1:{port}") as streamer:  # no server listens there
        target = StreamerTarget(streamer, None, False)
        assert target.sample().stream is None
        assert target.call_at_next_request(lambda: None)


def test_a_forked_child_keeps_its_own(child):
    child(
        f"""
        import os, sys
        sys.path.insert(0, {SUPPORT!r})
        from thread_models import double
        from waits import eventually
        from service_streamer import ThreadedStreamer
        from service_streamer.web._site import Site

        def kept():
            return site.history().body.count(b'"completed"')

        with ThreadedStreamer(double, 8) as streamer:
            site = Site(streamer)
            streamer.predict([1])
            eventually(kept)
            pid = os.fork()
            if pid == 0:
                before = kept()
                streamer.predict([1])
                eventually(kept)
                os._exit(before)
            assert os.waitpid(pid, 0)[1] == 0
        """
    )


# ------------------------------------------------------------- the hook of the engine


@pytest.mark.not_redis
def test_a_function_is_called_once_with_the_next_request(streamers):
    from service_streamer.extend import view_of

    streamer = streamers()
    called = []

    def note():
        called.append((threading.get_ident(), streamer.stats().submitted))

    streamer.predict([1])
    for _ in range(2):
        assert view_of(streamer).call_at_next_request(note)
    streamer.predict([2])
    streamer.submit([3]).result(LONG)
    assert called == [(threading.get_ident(), 1)] * 2


@pytest.mark.in_process
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_error_of_the_function_is_no_fault_of_the_caller_but_a_ctrl_c_is_for_it(streamers):
    from service_streamer.extend import view_of

    streamer = streamers()

    def fail(error):
        raise error

    view_of(streamer).call_at_next_request(lambda: fail(ValueError("mine")))
    assert streamer.predict([1]) == [2]
    view_of(streamer).call_at_next_request(lambda: fail(KeyboardInterrupt()))
    others = []
    view_of(streamer).call_at_next_request(lambda: others.append("called"))
    with pytest.raises(KeyboardInterrupt):
        streamer.predict([1])
    assert streamer.predict([1]) == [2]
    assert others == ["called"]
    assert streamer.stats().submitted == 2
