"""What happens to requests when connections and brokers fail: each is answered once."""

import contextlib
import socket
import threading
import time

import pytest
from process_models import ProcessGate
from waits import LONG, eventually

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER, RedisServer
from redis_tools import RawClient, ThreadedWorker

from service_streamer._redis.protocol import GROUP

pytest_plugins = ["redis_fixtures"]
pytestmark = NEEDS_SERVER


@pytest.fixture
def server(shared_redis_server, own_server):
    """One of the test's own where it is marked so by `own`."""
    return shared_redis_server if own_server is None else own_server


@pytest.fixture
def own_server(request):
    options = getattr(request, "param", None)
    if options is None:
        yield None
        return
    server = RedisServer(**options)
    yield server
    server.close()


def own(*variants):
    """Give the test servers that it may harm, one for each variant of options."""
    return pytest.mark.parametrize("own_server", variants or [{}], indirect=True)


def connections(client, command):
    """The addresses of those whose last command was this."""
    return {each["addr"] for each in client.redis.client_list() if each["cmd"] == command}


class Proxy:
    """A way to the broker that can be cut: nothing comes through, and neither side learns of it."""

    def __init__(self, server):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}?socket_timeout=2"
        self._server = ("127.0.0.1", server.port)
        self._whole = threading.Event()
        self._whole.set()
        self._threads = []
        self._start(self._accept)

    def cut(self):
        self._whole.clear()

    def mend(self):
        self._whole.set()

    def close(self):
        self.mend()
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(LONG)

    def _start(self, target, *args):
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self):
        with self._listener, contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._start(self._connect, near)

    def _connect(self, near):
        with near, socket.create_connection(self._server) as far:
            back = self._start(self._pass_on, far, near)
            self._pass_on(near, far)
            back.join()

    def _pass_on(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._whole.wait()
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def test_a_worker_behind_a_cut_network_loses_what_it_has_and_comes_back(
    server, workers, client, tmp_path, leftovers
):
    gate = ProcessGate(tmp_path)
    leftovers.append(gate.close)
    proxy = Proxy(server)
    far = workers(gate, redis_broker=proxy.url)
    futures = client.send([1], [2])
    gate.wait_entered()
    eventually(lambda: client.pending() == 2)
    proxy.cut()
    near = workers()
    assert client.results(futures) == [[2], [4]]
    near.close()
    gate.open()
    proxy.mend()
    assert client.ask([3]) == [6]
    assert far.error is None
    far.close()
    proxy.close()


@own()
def test_a_worker_that_connects_again_has_what_is_here_delivered_once(
    server, own_server, workers, client, process_gate
):
    workers(process_gate)
    (future,) = client.send([1])
    process_gate.wait_entered()
    eventually(lambda: connections(client, "xreadgroup"))
    for _ in range(4):
        broken = connections(client, "xreadgroup")
        for address in broken:
            client.redis.client_kill(address)
        eventually(lambda: connections(client, "xreadgroup") - broken)  # noqa: B023
    assert client.deliveries() == [1], "it would be taken for poison"
    process_gate.open()
    assert client.result(future) == [2]
    eventually(client.is_clean)


@own()
def test_what_was_on_its_way_when_the_connection_broke_is_taken(
    server, own_server, workers, client, process_gate
):
    worker = workers(process_gate, batch_size=1, _claim_after=2 * LONG)
    futures = client.send([1], [2])
    process_gate.wait_entered()
    eventually(lambda: worker.held == 2)  # it has no room for more
    futures += client.send([3], [4])
    client.redis.xreadgroup(GROUP, worker.name, {client.keys.queue: ">"})
    client.redis.xdel(client.keys.queue, client.entries[1])
    for address in connections(client, "xlen"):  # the fetcher's
        client.redis.client_kill(address)
    process_gate.open()
    assert client.results(futures[:3]) == [[2], [4], [6]]
    eventually(client.is_clean)


def test_a_group_that_is_destroyed_is_made_again(workers, client):
    workers()
    client.ask([1])
    client.redis.xgroup_destroy(client.keys.queue, GROUP)
    assert client.ask([2]) == [4]


@own({"appendonly": "yes"}, {})
def test_a_broker_that_is_restarted(server, own_server, request, prefix, workers, process_gate):
    kept = request.node.callspec.params["own_server"]
    client = RawClient(server, prefix)
    worker = workers(process_gate, batch_size=1)
    futures = client.send([1], [2], [3], [4])
    process_gate.wait_entered()
    eventually(lambda: worker.held == 2)
    server.kill()
    process_gate.open()  # they end while there is no broker
    server.start()
    expected = [[2], [4], [6], [8]]
    if not kept:  # those that were not here are lost: their client would send them again
        futures, expected = futures[:2], expected[:2]
    assert client.results(futures) == expected
    assert client.ask([5]) == [10]
    assert worker.error is None
    eventually(client.is_clean)
    client.close()


@own({"maxmemory": "3mb", "maxmemory-policy": "noeviction"})
def test_a_broker_without_memory_gets_replies_when_requests_are_gone(
    server, own_server, prefix, workers, client
):
    futures = []
    client.redis.config_set("maxmemory", 0)
    client.redis.xgroup_create(client.keys.queue, GROUP, "0", mkstream=True)
    futures = client.send(*[[bytes(50_000)] for _ in range(60)])
    used = client.redis.info("memory")["used_memory"]
    client.redis.config_set("maxmemory", used - 1_000_000)
    workers(len_of, batch_size=4)
    assert client.results(futures) == [[50_000]] * 60
    eventually(client.is_clean)


def len_of(batch):
    return [len(item) for item in batch]


def test_a_worker_ends_although_the_broker_is_away(prefix, process_gate):
    server = RedisServer()
    client = RawClient(server, prefix)
    worker = ThreadedWorker(process_gate, server, prefix)
    client.send([1])
    process_gate.wait_entered()
    server.kill()
    process_gate.open()
    begin = time.monotonic()
    worker.close()
    assert worker.error is None
    assert time.monotonic() - begin < LONG
    client.close()
    server.close()
