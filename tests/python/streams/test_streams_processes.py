"""Streams whose model is in another process."""

import itertools
import os
import signal
import socket
import struct

import pytest
from waits import LONG, eventually

from service_streamer import SerializationError, Streamer, StreamerClosed, WorkerLost
from service_streamer._streams.hub import this_hub

numpy = pytest.importorskip("numpy")


def count_up(items):
    for step in range(max(items)):
        yield [step if step < item else None for item in items]


def test_a_client_reads_streams(process_streamers):
    streamer = process_streamers(count_up)
    with Streamer.connect(streamer.address) as client:
        assert list(client.stream(100)) == list(range(100))


def test_large_pieces_arrive_whole(process_streamers):
    def generate(items):
        for step in range(20):
            yield [numpy.full(200_000, step) for _ in items]

    streamer = process_streamers(generate)
    for step, piece in enumerate(streamer.stream(1, buffer=3)):
        assert piece.shape == (200_000,)
        assert (piece == step).all()


def test_a_spawned_worker_streams(process_streamers):
    assert list(process_streamers(count_up, mp_start_method="spawn").stream(5)) == [0, 1, 2, 3, 4]


def test_warmup_runs_the_generator(process_streamers, process_journal):
    def generate(items):
        process_journal.append(items)
        yield items

    streamer = process_streamers(generate, warmup=[1, 2])
    assert list(streamer.stream(3)) == [3]
    assert process_journal.all() == [[1, 2], [3]]


def test_a_worker_that_dies_in_mid_stream_ends_the_stream(process_streamers):
    def generate(items):
        for _ in range(3):
            yield [os.getpid() for _ in items]
        while True:
            yield [None for _ in items]

    stream = process_streamers(generate).stream(1)
    os.kill(next(stream), signal.SIGKILL)
    with pytest.raises(WorkerLost):
        list(stream)


def test_a_stream_that_was_not_read_runs_again(process_streamers, process_journal):
    stream = process_streamers(Twice(process_journal)).stream(1)
    first = process_journal.next()
    eventually(lambda: stream._inbox.arrived == 5)
    run = stream._inbox.run
    os.kill(first, signal.SIGKILL)
    second = process_journal.next()
    eventually(lambda: stream._inbox.run != run)
    assert list(stream) == [(second, step) for step in range(5)]


class Twice:
    """Sends pieces and the pid of its process, and in its first run never ends."""

    def __init__(self, journal):
        self._journal = journal
        self._runs = os.path.join(os.path.dirname(journal._path), "runs")

    def __call__(self, items):
        first = not os.path.exists(self._runs)
        open(self._runs, "a").close()
        for step in range(5):
            yield [(os.getpid(), step) for _ in items]
        self._journal.append(os.getpid())
        while first:
            yield [None for _ in items]


def test_a_piece_that_cannot_be_pickled_ends_its_stream(process_streamers):
    def generate(items):
        yield items
        yield [lambda: None for _ in items]

    stream = process_streamers(generate).stream(1)
    assert next(stream) == 1
    with pytest.raises(SerializationError, match="function"):
        next(stream)


def test_a_piece_that_cannot_be_unpickled_is_raised_to_its_reader(process_streamers):
    def generate(items):
        yield [Unreadable() for _ in items]

    with pytest.raises(SerializationError, match="unpickled"):
        list(process_streamers(generate).stream(1))


class Unreadable:
    def __reduce__(self):
        return os.stat, ("/does/not/exist",)


@pytest.mark.parametrize("size", [5, 2**31])
def test_a_stranger_is_refused(process_streamers, size):
    streamer = process_streamers(count_up)
    stream = streamer.stream(3)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect("\0" + this_hub().socket)
        stranger.settimeout(LONG)
        stranger.sendall(struct.pack("<IBQ", size, 1, 0) + b"wrong")
        assert stranger.recv(1) == b""
    assert list(stream) == [0, 1, 2]


def test_streams_leave_nothing_behind(process_streamers):
    streamer = process_streamers(count_up)
    for _ in range(20):
        list(streamer.stream(5))
        streamer.stream(1000).close()
    eventually(lambda: not this_hub()._inboxes)


def test_a_dead_reader_stops_the_model(process_streamers, process_journal, child):
    def generate(items):
        try:
            for step in itertools.count():
                yield [step for _ in items]
        finally:
            process_journal.append("closed")

    streamer = process_streamers(generate)
    child(
        f"""
        from service_streamer import Streamer
        import os
        client = Streamer.connect({streamer.address!r})
        stream = client.stream(1)
        print(next(stream), flush=True)
        os._exit(0)
        """
    )
    assert process_journal.next() == "closed"


def test_a_child_cannot_read_the_streams_of_its_parent(process_streamers):
    streamer = process_streamers(count_up)
    stream = streamer.stream(5)
    assert next(stream) == 0
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with pytest.raises(StreamerClosed, match="parent"):
                next(stream)
            assert list(streamer.stream(3)) == [0, 1, 2]
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert list(stream) == [1, 2, 3, 4]
