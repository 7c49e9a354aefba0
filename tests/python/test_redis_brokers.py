"""Clients and workers over brokers of every kind: TLS, Sentinel, Cluster, users of few rights."""

import contextlib
import re
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from conftest import LONG, eventually
from process_models import double

pytest.importorskip("redis")

from redis_server import RedisServer, find_server, free_port
from redis_tools import ThreadedWorker, new_prefix

import service_streamer
from service_streamer import RedisStreamer
from service_streamer._redis import wire

pytestmark = [
    pytest.mark.over_redis,
    pytest.mark.skipif(find_server() is None, reason="no Redis server"),
]

README = Path(service_streamer.__file__).parent / "_redis" / "README.md"


@pytest.fixture
def servers():
    """Makes servers, which end after their clients and workers."""
    made = []

    def servers(**options):
        made.append(RedisServer(**options))
        return made[-1]

    yield servers
    for server in made:
        server.close()


class Place:
    """Where a worker and a client meet."""

    def __init__(self, address):
        prefix = new_prefix()
        self.url = address
        self.worker = ThreadedWorker(double, self, prefix)
        self.streamer = RedisStreamer(address, prefix)

    def close(self):
        self.streamer.close(drain=False, timeout=LONG)
        self.worker.close(drain=False)


@pytest.fixture
def meet(servers):
    """Makes places."""
    made = []

    def meet(address):
        made.append(Place(address))
        return made[-1].streamer

    yield meet
    for place in made:
        place.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A key and a certificate of 127.0.0.1 that certifies itself."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    folder = tmp_path_factory.mktemp("certificate")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    command += " -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True, timeout=LONG)
    return folder


@pytest.fixture
def tls_server(servers, certificate):
    port = free_port()
    try:
        server = servers(
            tls_port=port,
            tls_cert_file=certificate / "cert.pem",
            tls_key_file=certificate / "key.pem",
            tls_ca_cert_file=certificate / "cert.pem",
            tls_auth_clients="no",
        )
    except AssertionError:
        pytest.skip("the server has no TLS")
    server.url_tls = f"rediss://127.0.0.1:{port}?ssl_ca_certs={certificate / 'cert.pem'}"
    return server


def test_tls(tls_server, meet):
    streamer = meet(tls_server.url_tls)
    assert streamer.predict([1, "a"]) == [2, "aa"]
    assert streamer.predict([bytes(2_000_000)]) == [bytes(4_000_000)]


def test_tls_in_a_patched_process(tls_server, meet, child):
    pytest.importorskip("gevent")
    streamer = meet(tls_server.url_tls)
    streamer.wait_ready(LONG)
    done = child(
        """
        from gevent import monkey; monkey.patch_all()
        import gevent, sys
        from service_streamer import RedisStreamer
        with RedisStreamer(sys.argv[1], sys.argv[2]) as streamer:
            jobs = [gevent.spawn(streamer.predict, [i]) for i in range(50)]
            gevent.joinall(jobs, raise_error=True)
            print([job.value for job in jobs] == [[2 * i] for i in range(50)])
        """,
        tls_server.url_tls,
        streamer._redis_options.prefix,
    )
    assert done.stdout == "True\n"


def test_a_cluster(servers, meet):
    server = servers(cluster_enabled="yes")
    server.client().execute_command("CLUSTER", "ADDSLOTS", *range(16384))
    eventually(lambda: b"cluster_state:ok" in server.client().execute_command("CLUSTER", "INFO"))
    streamer = meet(f"redis+cluster://{server.address}")
    assert streamer.predict(list(range(200))) == list(range(0, 400, 2))
    server.client().execute_command("CLIENT", "KILL", "TYPE", "normal")
    assert streamer.predict([1], timeout=LONG) == [2]


class Sentinel:
    """A sentinel that watches a master, and fails over within a second."""

    def __init__(self, master, folder):
        self.port = free_port()
        config = folder / "sentinel.conf"
        config.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor models 127.0.0.1 {master.port} 1\n"
            "sentinel down-after-milliseconds models 500\n"
            "sentinel failover-timeout models 2000\n"
        )
        with open(folder / "log", "wb") as log:
            command = [find_server(), str(config), "--sentinel"]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=-3)

    def close(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(LONG)


def test_a_failover_costs_only_time(servers, meet, tmp_path, threads):
    master = servers(repl_diskless_sync_delay=0)
    replica = servers()
    replica.client().execute_command("REPLICAOF", "127.0.0.1", master.port)
    eventually(lambda: replica.client().info("replication")["master_link_status"] == "up")
    sentinel = Sentinel(master, tmp_path)
    try:
        import redis

        asked = redis.Redis(port=sentinel.port, protocol=2)

        def replicas():
            return len(asked.execute_command("SENTINEL", "REPLICAS", "models"))

        def role():
            return replica.client().info("replication")["role"]

        def patiently(ask):
            with contextlib.suppress(redis.ConnectionError):
                return ask()

        eventually(lambda: patiently(replicas))
        streamer = meet(f"redis+sentinel://127.0.0.1:{sentinel.port}/models")
        over = threading.Event()

        def ask(i):
            count = 0
            while not over.is_set():
                assert streamer.predict([i, count], timeout=LONG) == [2 * i, 2 * count]
                count += 1
            return count

        for i in range(4):
            threads.run(ask, i)
        eventually(lambda: streamer.stats().completed > 100)
        master.kill()
        eventually(lambda: patiently(role) == "master")
        before = streamer.stats().completed
        eventually(lambda: streamer.stats().completed > before + 100)
        over.set()
        assert all(isinstance(count, int) for count in threads.join())
    finally:
        sentinel.close()


def test_the_rights_that_are_written_down_are_enough(servers, meet):
    server = servers()
    (needed, wanted) = re.search(r"needs `([^`]*)`, and `([^`]*)`", README.read_text()).groups()
    for number, rights in enumerate([needed, f"{needed} {wanted}"]):
        user = f"user{number}"
        server.client().execute_command("ACL", "SETUSER", user, "on", ">word", *rights.split())
        streamer = meet(f"redis://{user}:word@{server.address}")
        streamer.wait_ready(LONG)
        assert streamer.predict([1]) == [2]
        assert streamer.stats().stream.length == 0


def test_without_hiredis(servers, meet, monkeypatch):
    monkeypatch.setattr(wire, "hiredis", None)
    streamer = meet(servers().address)
    assert streamer.predict(list(range(100))) == list(range(0, 200, 2))
    assert streamer.predict([bytes(1_000_000)]) == [bytes(2_000_000)]
