"""The channel from a model to a reader, without a streamer."""

import functools
import threading
from concurrent import futures

import pytest

from service_streamer import QueueFull, WorkerLost
from service_streamer._base import request_context
from service_streamer._streams import inbox as inboxes
from service_streamer._streams import writer as writers
from service_streamer._streams.hub import Address, this_hub
from service_streamer._streams.inbox import END, NOTHING, Inbox, Sent
from service_streamer._streams.opening import open_writer
from service_streamer._streams.writer import wait_for_room


@pytest.fixture
def inbox():
    inbox = Inbox(4)
    yield inbox
    inbox.cancel()


@pytest.fixture
def new_run(inbox):
    """Opens a writer for one more run."""
    return functools.partial(open_writer, this_hub().add(inbox).pack())


def test_pieces_and_the_end_arrive_in_order(inbox, new_run):
    writer = new_run()
    assert inbox.take() is NOTHING
    assert [writer.put(piece) for piece in "abcd"] == [True, True, True, False]
    writer.end()
    assert [inbox.take() for _ in range(5)] == [*"abcd", END]
    assert writer.output == Sent(writer.run, 4)


def test_an_error_comes_after_the_pieces(inbox, new_run):
    writer = new_run()
    writer.put("a")
    writer.end(error := ValueError("odd"))
    assert writer.output is error
    assert error._service_streamer_sent == Sent(writer.run, 1)
    assert inbox.take() == "a"
    with pytest.raises(ValueError, match="odd"):
        inbox.take()


def test_a_new_run_drops_the_pieces_of_the_old_one(inbox, new_run):
    new_run().put("old")
    second = new_run()
    second.put("new")
    second.end()
    assert [inbox.take(), inbox.take()] == ["new", END]


def test_a_new_run_after_a_piece_was_taken_ends_the_stream(inbox, new_run):
    first = new_run()
    first.put("a")
    assert inbox.take() == "a"
    assert new_run().cancelled
    with pytest.raises(WorkerLost, match="part of the stream"):
        inbox.take()


def test_a_new_run_after_the_end_sends_nothing(inbox, new_run):
    first = new_run()
    first.put("a")
    first.end()
    second = new_run()
    assert second.cancelled
    second.put("b")
    assert [inbox.take(), inbox.take()] == ["a", END]


def test_a_reader_that_leaves_cancels_and_wakes_the_writer(inbox, new_run):
    writer = new_run()
    woken = []
    writer.wake = lambda: woken.append(1)
    inbox.cancel()
    assert writer.cancelled
    assert woken
    writer.put("a")
    assert not inbox.pieces
    assert new_run().cancelled  # the hub does not know the stream any more


def test_the_writer_wakes_when_half_of_the_buffer_is_free(inbox, new_run):
    writer = new_run()
    for piece in "abcd":
        writer.put(piece)
    woken = []
    writer.wake = lambda: woken.append(inbox.taken)
    for _ in range(3):
        inbox.take()
    assert woken == [2, 3]
    assert writer.room


def test_waiting_for_room_ends_when_a_piece_is_taken(inbox, new_run):
    writer = new_run()
    for piece in "abcd":
        writer.put(piece)
    waiting = threading.Thread(target=wait_for_room, args=([writer],))
    waiting.start()
    assert [inbox.take(), inbox.take()] == ["a", "b"]
    waiting.join()
    assert not writer.cancelled


def test_a_reader_that_takes_nothing_is_dropped(inbox, new_run, monkeypatch):
    monkeypatch.setattr(writers, "PATIENCE", 0.01)
    writer = new_run()
    for piece in "abcd":
        writer.put(piece)
    wait_for_room([writer])
    assert writer.cancelled
    assert [inbox.take() for _ in range(4)] == [*"abcd"]
    with pytest.raises(QueueFull, match="4 pieces"):
        inbox.take()


def test_an_unknown_reader_is_no_error():
    assert open_writer(b"of another version").cancelled
    assert open_writer(Address("secret", 1, 4, "nobody-listens-there").pack()).cancelled


@pytest.mark.parametrize("trace", [None, b"00-trace", b"00-trace\nvendor=state"])
@pytest.mark.parametrize("reader", [None, b"secret 1 64 "])
def test_a_context_has_a_trace_and_a_reader(trace, reader):
    packed = request_context.join(trace, reader)
    if packed is None:
        assert (trace, reader) == (None, None)
    else:
        assert request_context.trace_of(packed) == trace
        assert request_context.reader_of(packed) == reader


def test_a_long_trace_state_does_not_travel():
    trace = b"00-trace\nvendor=" + b"x" * 1000
    packed = request_context.join(trace, b"secret 1 64 ")
    assert request_context.trace_of(packed) == b"00-trace"
    assert request_context.reader_of(packed) == b"secret 1 64 "


def test_pieces_that_do_not_arrive_are_lost(inbox, monkeypatch):
    monkeypatch.setattr(inboxes, "LATE", 0.0)
    inbox._future = futures.Future()
    inbox._future.set_result([Sent(b"unknown ", 3)])
    with pytest.raises(WorkerLost, match="a part of the stream"):
        inbox.take()
