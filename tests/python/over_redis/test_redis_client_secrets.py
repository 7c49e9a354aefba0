"""RedisStreamer: messages that are signed, and those of strangers."""

import logging
from types import SimpleNamespace

import pytest
from waits import LONG, eventually

pytest.importorskip("redis")

from broker_bodies import result_of
from redis_messages import pack_replies
from redis_server import NEEDS_SERVER
from redis_tools import MakesAFolder

from service_streamer import WorkerLost, _core
from service_streamer._redis import protocol
from service_streamer._redis.client import sender
from service_streamer._redis.protocol import VERSION, Signer, unpack_request

pytest_plugins = ["redis_fixtures"]
pytestmark = NEEDS_SERVER


@pytest.mark.usefixtures("quick_audits")
@pytest.mark.parametrize(("ours", "theirs"), [("one", "other"), (None, "one"), ("one", None)])
def test_with_another_secret_requests_fail_and_do_not_hang(make, workers, ours, theirs):
    workers(secret=theirs)
    streamer = make(secret=ours)
    future = streamer.submit([1])
    with pytest.raises(WorkerLost, match="another secret"):
        future.result(LONG)


def test_strange_replies_are_ignored_counted_and_logged_once(make, workers, queue, caplog):
    streamer = make(secret="secret")
    future = streamer.submit([1])
    eventually(lambda: len(queue) == 1)
    (waiting,) = [
        protocol.unpack_request(Signer("secret").open(queue.keys.queue, message))
        for _, message in queue.entries()
    ]
    replies = queue.keys.replies(waiting.client)
    forged = pack_replies([(waiting.request, 0, 1, b"\0" * 100)])
    with caplog.at_level(logging.ERROR, "service_streamer"):
        for fields in [
            {"m": forged},
            {"m": Signer("other").seal(replies, forged)},
            {"m": Signer("secret").seal(queue.keys.queue, forged)},
            {"m": Signer("secret").seal(replies, b"not one of ours")},
            {"m": b""},
            {"x": Signer("secret").seal(replies, forged)},
        ]:
            queue.redis.xadd(replies, fields)
        eventually(lambda: streamer.stats().stream.refused == 6)
    assert len([r for r in caplog.records if "is ignored" in r.getMessage()]) == 1
    assert not future.done()
    workers(secret="secret")
    assert future.result(LONG) == [2]


@pytest.mark.parametrize(("ours", "theirs"), [("right", None), ("right", "other"), (None, None)])
def test_a_forged_answer_is_refused_before_it_is_unpickled(
    make, workers, queue, tmp_path, ours, theirs
):
    mark = tmp_path / "unpickled"
    streamer = make(secret=ours)
    future = streamer.submit([1])
    eventually(lambda: len(queue) == 1)
    ((_, message),) = queue.entries()
    waiting = unpack_request(Signer(ours).open(queue.keys.queue, message))
    replies = queue.keys.replies(waiting.client)
    forged = pack_replies([(waiting.request, 0, 1, result_of([MakesAFolder(mark)]))])
    queue.redis.xadd(replies, {"m": Signer(theirs).seal(replies, forged)})
    if ours is None:  # so it would be seen
        future.result(LONG)
        assert mark.exists()
        return
    eventually(lambda: streamer.stats().stream.refused == 1)
    workers(secret=ours)
    assert future.result(LONG) == [2]
    assert not mark.exists()


@pytest.mark.usefixtures("quick_audits")
def test_replies_of_another_version_are_ignored_and_named_when_the_request_ends(make, queue):
    streamer = make()
    future = streamer.submit([1])

    def answer_until_it_ends():
        for entry, message in queue.entries():
            waiting = unpack_request(message)
            reply = bytearray(pack_replies([(waiting.request, 0, 1, result_of([2]))]))
            reply[2] = VERSION + 1
            queue.redis.xadd(queue.keys.replies(waiting.client), {"m": bytes(reply)})
            queue.redis.xdel(queue.keys.queue, entry)
        return future.done()

    eventually(answer_until_it_ends)
    with pytest.raises(WorkerLost, match=rf"\b{VERSION + 1}\b.*\b{VERSION}\b"):
        future.result(0)
    assert streamer.stats().stream.refused == 4


@pytest.mark.parametrize("secret", [None, "secret"])
def test_a_worker_of_another_version_ends_requests_with_both_versions(
    make, workers, monkeypatch, secret
):
    def pack_requests(*arguments):
        *arguments, seal = arguments

        def make_newer(message):
            message = message[:2] + bytes([VERSION + 1]) + message[3:]
            return seal(message) if seal else message

        return _core.pack_requests(*arguments, make_newer)

    workers(secret=secret)
    streamer = make(secret=secret)
    both = rf"\b{VERSION + 1}\b.*\b{VERSION}\b"
    with monkeypatch.context() as patch:
        patch.setattr(sender, "_core", SimpleNamespace(pack_requests=pack_requests))
        with pytest.raises(WorkerLost, match=both):
            streamer.predict([1], timeout=LONG)
    assert streamer.predict([1]) == [2]


def test_what_is_left_of_a_refused_request_is_taken_back(make, queue):
    streamer = make(batch_size=2)
    large = streamer.submit(list(range(6)))
    eventually(lambda: len(queue) == 3)
    waiting = queue.requests()
    refusal = protocol.pack_refusal(waiting[0].request, 0, 2, "poison")
    queue.redis.xadd(queue.keys.replies(waiting[0].client), {"m": refusal})
    with pytest.raises(WorkerLost, match="poison"):
        large.result(LONG)
    streamer.submit([7])
    eventually(lambda: len(queue) == 1)
