"""A client that is closed before, while and after it connects: nothing hangs or is left."""

import sys
import threading
from types import SimpleNamespace

import pytest
from tasks import threads_named
from thread_models import double
from waits import LONG, eventually

from service_streamer import Streamer, StreamerClosed, StreamerError, _core
from service_streamer._engine import backend as _backend
from service_streamer._streamers import streamer as _streamer


@pytest.fixture
def client(tmp_path):
    """One of a streamer that is not there."""
    client = Streamer.connect(str(tmp_path / "nobody"))
    yield client
    client.close(drain=False, timeout=LONG)


@pytest.mark.parametrize(
    "ask", [Streamer.stats, Streamer.explain, lambda client: client.configure(batch_size=4)]
)
@pytest.mark.parametrize("alone", [False, True])
def test_a_client_closed_unused_does_not_connect(client, monkeypatch, ask, alone):
    before = threads_named("streamer-link")
    with monkeypatch.context() as patch:
        if alone:
            patch.setattr(client._backend, "own_this_thread", lambda: True)
        client.close()
    with pytest.raises(StreamerClosed):
        ask(client)
    assert threads_named("streamer-link") <= before


def test_a_client_closed_after_use_has_no_answer(process_streamers):
    streamer = process_streamers(double)
    client = Streamer.connect(streamer.address)
    assert client.predict([1], timeout=LONG) == [2]
    client.close(timeout=LONG)
    with pytest.raises(StreamerError, match="no statistics"):
        client.stats()


def test_a_client_closed_while_it_connects_leaves_nothing(client, threads, monkeypatch):
    before = threads_named("streamer-link")
    original = _core.ClientLink
    made = []

    class ClosedMeanwhile:
        def __init__(self, *args):
            self._link = original(*args)
            made.append(self)

        def start(self):
            self._link.start()
            threads.run(client.close)
            threads.join()

        def __getattr__(self, name):
            return getattr(self._link, name)

    monkeypatch.setattr(_core, "ClientLink", ClosedMeanwhile)
    with pytest.raises(StreamerClosed):
        client.submit([1])
    assert threads.join() == [None]
    assert len(made) == 1
    eventually(lambda: threads_named("streamer-link") <= before)


def test_a_client_closed_while_it_waits_says_so(client, threads):
    threads.run(client.wait_ready)
    eventually(lambda: client._backend._link is not None)
    client.close(timeout=LONG)
    (raised,) = threads.join()
    assert isinstance(raised, StreamerClosed)


def test_a_client_closed_just_before_it_waits_says_so(client, threads, monkeypatch):
    before = threads_named("streamer-link")

    def closed_first(fn, *args):
        monkeypatch.undo()
        client.close(timeout=LONG)
        return fn(*args)

    monkeypatch.setattr(_streamer.greenlets, "call", closed_first)
    threads.run(client.wait_ready)
    (raised,) = threads.join()
    assert isinstance(raised, StreamerClosed)
    assert threads_named("streamer-link") <= before


def frames_of_threads():
    """What all threads are in at this moment."""
    for frame in sys._current_frames().values():
        while frame is not None:
            yield frame
            frame = frame.f_back


def test_the_thread_that_joins_has_begun_before_the_interpreter_can_end():
    # CPython may crash at its end when a thread that was started has not begun.
    ended = threading.Event()
    joined = threading.Event()
    backend = SimpleNamespace(
        engine=SimpleNamespace(join=lambda timeout: ended.wait(LONG)),
        join=lambda timeout: joined.set(),
    )
    _backend.join_in_background(backend)
    joining = [frame for frame in frames_of_threads() if frame.f_code.co_name == "join"]
    begun = any(frame.f_locals.get("backend") is backend for frame in joining)
    ended.set()
    assert begun
    assert joined.wait(LONG)
