"""How clients and workers end when the broker does not answer, or a thread of theirs fails."""

import gc
import socket
import threading
from types import SimpleNamespace

import pytest
from waits import LONG, eventually

pytest.importorskip("redis")

from redis.connection import Connection
from redis_server import NEEDS_SERVER

from service_streamer import BrokerError
from service_streamer._base.options import Options
from service_streamer._redis.client.backend import RedisClient, RedisOptions
from service_streamer._redis.client.reader import ReplyReader
from service_streamer._redis.client.sender import Sender
from service_streamer._redis.connection.broker import Broker
from service_streamer._redis.connection.raw_connections import shut_down
from service_streamer._redis.gateway import shard_link
from service_streamer._redis.gateway.lease_keeper import LeaseKeeper
from service_streamer._waiting.threads import NativeThread

pytest_plugins = ["redis_fixtures"]
pytestmark = NEEDS_SERVER

PATIENT = f"socket_timeout={10 * LONG}"


# ----------------------------------------------------------------- connections


@pytest.fixture
def listener():
    """Where a broker could be, that says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LONG)
        yield listener


def connection_to(listener, kind="redis://{}"):
    port = listener.getsockname()[1]
    return Broker(f"{kind.format(f'127.0.0.1:{port}')}?{PATIENT}", b"key").connection()


@pytest.mark.parametrize("kind", ["redis://{}", "redis+sentinel://{}/models", "redis+cluster://{}"])
def test_a_connection_can_be_interrupted_while_it_is_made(listener, threads, kind):
    connection = connection_to(listener, kind)
    threads.run(connection.connect)
    peer, _ = listener.accept()
    with peer:
        assert peer.recv(1)  # it waits for the reply to that
        connection.interrupt()
        (error,) = threads.join()
    assert isinstance(error, BrokerError)


def test_a_connection_that_was_interrupted_before_it_had_a_socket_asks_nothing(
    listener, threads, monkeypatch
):
    connection = connection_to(listener)
    connect = Connection._connect

    def connect_late(link):
        connection.interrupt()
        return connect(link)

    monkeypatch.setattr(Connection, "_connect", connect_late)
    threads.run(connection.connect)
    (error,) = threads.join()
    assert "interrupted" in str(error)
    peer, _ = listener.accept()
    with peer:
        assert peer.recv(1) == b""


def test_a_socket_is_broken_itself_and_not_by_its_number():
    """The number may be that of another socket, by the time that it is used."""

    class Numberless(socket.socket):
        def fileno(self):
            raise AssertionError("asked for its number")

    ours, peer = socket.socketpair()
    with Numberless(fileno=ours.detach()) as ours, peer:
        shut_down(SimpleNamespace(_sock=ours))
        assert peer.recv(1) == b""


# --------------------------------------------------------------------- clients


def test_a_client_ends_while_it_connects_to_a_broker_that_does_not_answer(make, servers):
    server = servers()
    server.freeze()
    streamer = make(f"{server.url}?{PATIENT}")
    future = streamer.submit([1])
    connection = streamer._backend._pair.sender._connection
    eventually(lambda: connection._newest is not None and connection._newest._sock is not None)
    streamer.close(drain=False, timeout=LONG)
    assert future.done()
    assert all(thread.join(0) for thread in streamer._backend._all_threads())


def test_a_client_that_is_closed_while_it_starts_leaves_no_thread():
    client = RedisClient(Options(batch_size=8), RedisOptions("127.0.0.1:1", "", None))
    client.close(drain=False)
    assert client.join(LONG)
    client._start()
    assert all(thread.join(LONG) for thread in client._all_threads())


@pytest.mark.parametrize("which", ["sender", "reader"])
@pytest.mark.parametrize("how", ["no thread", "interrupt before", "interrupt after"])
def test_a_start_that_failed_is_made_up_for_by_the_next_request(
    worker, make, monkeypatch, which, how
):
    start, names, kept = NativeThread.start, [], []

    def fail_once(thread):
        names.append(thread._name)
        failing = thread._name.endswith(which) and names.count(thread._name) == 1
        if failing and how == "no thread":
            raise RuntimeError("can't start new thread")
        if failing and how == "interrupt before":
            raise KeyboardInterrupt
        start(thread)
        if failing:
            raise KeyboardInterrupt

    monkeypatch.setattr(NativeThread, "start", fail_once)
    streamer = make()
    gc.disable()  # it would mend what refers to itself
    try:
        try:
            streamer.predict([1])
        except (RuntimeError, KeyboardInterrupt) as error:
            kept.append(error)  # and with it the frames
        assert kept
        for i in range(5):
            assert streamer.predict([i], timeout=LONG) == [2 * i]
    finally:
        gc.enable()
    streamer.close()
    eventually(lambda: not running({"service-streamer-sender", "service-streamer-reader"}))


def running(names):
    return [thread for thread in threading.enumerate() if thread.name in names]


def test_a_client_whose_threads_never_started_is_closed(make, monkeypatch):
    def fail(thread):
        raise RuntimeError("can't start new thread")

    streamer = make()
    with monkeypatch.context() as patch:
        patch.setattr(NativeThread, "start", fail)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="can't start"):
                streamer.predict([1])
    streamer.close()


@pytest.mark.parametrize(("end", "method"), [(Sender, "_send"), (ReplyReader, "_answers")])
def test_a_destructor_may_close_a_client_in_a_thread_of_its_own(
    worker, make, monkeypatch, end, method
):
    """The collector runs in whatever thread it likes."""
    act = getattr(end, method)
    owners, closed = [], threading.Event()
    streamer = make()

    class Owner:
        def __del__(self):
            streamer.close()
            closed.set()

    def act_and_collect(self, *args):
        owners.clear()
        return act(self, *args)

    owners.append(Owner())
    monkeypatch.setattr(end, method, act_and_collect)
    assert streamer.predict([1], timeout=LONG) == [2]
    assert closed.wait(LONG)


# --------------------------------------------------------------------- workers


def test_a_worker_leaves_a_broker_that_does_not_answer(workers, raw_clients, servers, monkeypatch):
    monkeypatch.setattr(shard_link, "CLOSE_PATIENCE", 0.1)
    server = servers()
    worker = workers(server=server, redis_broker=f"{server.url}?{PATIENT}")
    worker.wait_ready(raw_clients(server=server))
    server.freeze()
    worker.close()
    assert worker.error is None


def test_a_worker_whose_keeper_fails_ends_with_its_error_and_leaves(workers, client, monkeypatch):
    answered = threading.Event()

    def fail(keeper):
        assert answered.wait(LONG)
        raise LookupError("what should not happen")

    monkeypatch.setattr(LeaseKeeper, "run", fail)
    worker = workers()
    assert client.ask([1]) == [2]
    answered.set()
    worker.join()
    assert isinstance(worker.error, LookupError)
    assert client.consumers() == []
