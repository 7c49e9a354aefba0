"""Step models in worker processes, also in those of a RedisWorker. What threads do alike, too."""

import os
import signal

import pytest
from step_models import BadStep, Countdown, Told, Unpicklable, down
from waits import LONG, eventually

from service_streamer import RequestTimeout, SerializationError, Streamer, WorkerLost

pytest_plugins = ["step_fixtures"]


@pytest.fixture
def journaled(process_streamers, process_journal):
    """Makes a streamer whose model writes to the journal what it admits and drops."""

    def make(**options):
        options.setdefault("batch_size", 4)
        return process_streamers(Told, model_init_args=[process_journal], **options)

    return make


@pytest.fixture(
    params=["threads", "processes", pytest.param("redis", marks=pytest.mark.over_redis)]
)
def anywhere(request, journaled, step_streamers, process_journal, monkeypatch):
    """Makes such a streamer with a thread, with processes or over Redis."""
    if request.param == "processes":
        yield journaled
        return
    monkeypatch.setattr(Told, "_journal", process_journal, raising=False)
    monkeypatch.setattr(Told, "init_model", lambda self: None)
    if request.param == "threads":
        yield lambda batch_size=4: step_streamers(Told(), batch_size)
        return
    from redis_backend import RedisPair

    pairs = []

    def make(batch_size=4):
        server = request.getfixturevalue("shared_redis_server")
        pairs.append(RedisPair(server, Told, batch_size))
        return pairs[-1].streamer

    yield make
    for pair in pairs:
        pair.close()


@pytest.fixture
def admitted(process_journal):
    """Waits until an item is live."""

    def admitted(item):
        while process_journal.next() != ("admit", item):
            pass

    return admitted


@pytest.fixture
def dropped(process_journal):
    """Waits until an item has left."""

    def dropped(item):
        while process_journal.next() != ("drop", item):
            pass

    return dropped


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_each_item_gets_its_own_outputs(process_streamers, method):
    streamer = process_streamers(Countdown, 4, worker_num=2, mp_start_method=method, warmup=[3, 1])
    futures = [streamer.submit([i, 2 * i, 1]) for i in range(1, 30)]
    for i, future in enumerate(futures, 1):
        assert future.result(LONG) == [down(i), down(2 * i), [1]]


def test_streams(anywhere):
    streamer = anywhere(batch_size=2)
    streams = [streamer.stream(item, timeout=LONG) for item in (5, 300, 1)]
    assert [list(stream) for stream in streams] == [down(5), down(300), [1]]


def test_items_enter_and_leave_beside_one_that_is_never_done(anywhere, admitted):
    streamer = anywhere()
    endless = streamer.submit([0])
    admitted(0)
    futures = [streamer.submit([i, 3]) for i in range(1, 30)]
    for i, future in enumerate(futures, 1):
        assert future.result(LONG) == [down(i), down(3)]
    assert not endless.done()
    endless._abandon()  # a close would wait for it


def test_live_items_are_counted(journaled, admitted, dropped):
    streamer = journaled()
    endless = streamer.submit([0])
    admitted(0)
    assert streamer.stats().steps.live == 1
    assert (streamer.stats().batch_size, streamer.stats().workers) == (4, 1)
    assert "1.0 items are live now" in streamer.explain()
    endless._abandon()
    dropped(0)
    eventually(lambda: streamer.stats().steps.live == 0)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_cancelled_item_leaves(anywhere, admitted, dropped, batch_size):
    streamer = anywhere(batch_size=batch_size)
    future = streamer.submit([0])
    admitted(0)
    future._abandon()
    dropped(0)
    assert streamer.predict([2]) == [[2, 1]]


def test_an_expired_item_leaves(anywhere, process_journal):
    streamer = anywhere()
    with pytest.raises(RequestTimeout):
        streamer.predict([0], timeout=0.1)
    assert streamer.predict([2]) == [[2, 1]]
    admitted = ("admit", 0) in process_journal.all()
    eventually(lambda: not admitted or ("drop", 0) in process_journal.all())


def test_a_closed_stream_leaves(anywhere, dropped):
    stream = anywhere().stream(0, timeout=LONG)
    assert isinstance(next(stream), int)
    stream.close()
    dropped(0)


def test_a_client_reads_streams_and_leaves(journaled, dropped):
    streamer = journaled()
    client = Streamer.connect(streamer.address)
    assert client.predict([3]) == [down(3)]
    assert list(client.stream(200)) == down(200)
    assert client.stats().batch_size == 4
    stream = client.stream(0)
    next(stream)
    client.close(drain=False, timeout=LONG)
    dropped(0)


def test_items_of_a_client_that_is_closed_leave(journaled, admitted, dropped):
    client = Streamer.connect(journaled().address)
    client.submit([0])
    admitted(0)
    client.close(drain=False, timeout=0)
    dropped(0)


def test_a_slow_reader_delays_no_other(anywhere):
    streamer = anywhere(batch_size=1)
    slow = streamer.stream(1000, timeout=LONG, buffer=4)
    assert next(slow) == 1000
    assert streamer.predict([3]) == [down(3)]
    assert list(streamer.stream(300, timeout=LONG)) == down(300)
    assert list(slow) == down(999)


def test_states_are_bounded_while_readers_are_slow(journaled, process_journal):
    streamer = journaled(batch_size=2)
    streams = [streamer.stream(50, buffer=1) for _ in range(6)]
    eventually(lambda: process_journal.all().count(("admit", 50)) == 4)
    eventually(lambda: streamer.stats().queued_items == 2)
    streams[5].close()
    for stream in streams[:5]:
        assert list(stream) == down(50)
    assert streamer.predict([2]) == [[2, 1]]
    assert process_journal.all().count(("admit", 50)) == 5


def test_items_of_a_dead_worker_run_again(journaled, admitted):
    streamer = journaled()
    endless = streamer.stream(0)
    pid = next(endless)
    future = streamer.submit([0], timeout=LONG)
    admitted(0)
    admitted(0)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerLost):  # a part of the stream was read
        next(endless)
    admitted(0)
    assert streamer.predict([3]) == [down(3)]
    assert not future.done()
    future._abandon()


def test_an_item_is_lost_with_its_second_worker(journaled):
    streamer = journaled(retries=0)
    stream = streamer.stream(0)
    pid = next(stream)
    future = streamer.submit([0])
    eventually(lambda: streamer.stats().steps.live == 2)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerLost):
        future.result(LONG)
    with pytest.raises(WorkerLost):
        next(stream)


def test_only_the_guilty_item_fails(process_streamers):
    streamer = process_streamers(BadStep)
    futures = [streamer.submit([item]) for item in (5, 3, 2)]
    assert futures[0].result(LONG) == [down(5)]
    with pytest.raises(ValueError, match="three"):
        futures[1].result(LONG)
    assert futures[2].result(LONG) == [down(2)]


def test_outputs_that_cannot_be_pickled(process_streamers):
    streamer = process_streamers(Unpicklable)
    with pytest.raises(SerializationError):
        streamer.predict([6])
    with pytest.raises(SerializationError):
        list(streamer.stream(6))
    assert streamer.predict([5]) == [down(5)]


def test_closing_lets_live_items_end(process_streamers):
    streamer = process_streamers(Countdown, 2)
    futures = [streamer.submit([500]) for _ in range(6)]
    streamer.close()
    assert all(future.result(LONG) == [down(500)] for future in futures)


def test_workers_are_replaced_and_added(process_streamers):
    streamer = process_streamers(Countdown, 2)
    future = streamer.submit([2000])
    streamer.restart(BadStep, timeout=LONG)
    assert future.result(LONG) == [down(2000)]
    with pytest.raises(ValueError):
        streamer.predict([3])
    streamer.resize(2)
    assert streamer.stats().workers == 2


@pytest.mark.parametrize("who", ["owner", "client"])
def test_the_batch_size_can_change(journaled, admitted, who):
    streamer = journaled(batch_size=1)
    futures = [streamer.submit([0]) for _ in range(3)]
    admitted(0)
    changing = streamer if who == "owner" else Streamer.connect(streamer.address)
    changing.configure(batch_size=3, policy="window")
    admitted(0)
    admitted(0)
    assert streamer.stats().batch_size == 3
    streamer.resize(2)
    assert (streamer.stats().batch_size, streamer.stats().workers) == (3, 2)
    changing.configure(batch_size=1)
    for future in futures:
        future._abandon()
    assert streamer.predict([3, 2, 1]) == [down(3), down(2), down(1)]


def test_refused_settings(process_streamers):
    with pytest.raises(TypeError, match="pass the class Countdown"):
        process_streamers(Countdown())
    with pytest.raises(ValueError, match='output must be "items"'):
        process_streamers(Countdown, output="batch")
