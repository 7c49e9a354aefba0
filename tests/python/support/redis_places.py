"""Brokers of every kind for the tests: TLS, a cluster of two nodes, a master with a sentinel."""

import bisect
import contextlib
import itertools
import shutil
import signal
import subprocess

import pytest
from ports import reserve_port
from redis_server import RedisServer, find_server
from waits import LONG, eventually

SLOTS = 16384


class Plain:
    """A place of one server.

    Attributes:
        url: what leads there.
    """

    def __init__(self):
        self.server = RedisServer()
        self.url = self.server.url

    def client(self, keys):
        """A client of redis-py, of the server that has these keys now."""
        return self.server.client()

    def close(self):
        self.server.close()


class Tls(Plain):
    """A server with a certificate that certifies itself."""

    def __init__(self, certificate):
        self._port = reserve_port()
        port = self._port.getsockname()[1]
        options = {
            "tls_cert_file": certificate / "cert.pem",
            "tls_key_file": certificate / "key.pem",
            "tls_ca_cert_file": certificate / "cert.pem",
        }
        try:
            self.server = RedisServer(tls_port=port, tls_auth_clients="no", **options)
        except AssertionError:
            self._port.close()
            pytest.skip("the server has no TLS")
        self.address = f"127.0.0.1:{port}"
        self.url = f"rediss://{self.address}?ssl_ca_certs={certificate / 'cert.pem'}"

    def close(self):
        super().close()
        self._port.close()


class Cluster:
    """Nodes with equal parts of the slots; only the first is known."""

    def __init__(self, nodes=2):
        # without the second option, a node that is down stops the others
        options = {"cluster_enabled": "yes", "cluster_require_full_coverage": "no"}
        self.nodes = [RedisServer(**options) for _ in range(nodes)]
        self.url = f"redis+cluster://{self.nodes[0].address}"
        bounds = [SLOTS * number // nodes for number in range(nodes + 1)]
        self._starts = bounds[:-1]
        for node, slots in zip(self.nodes, itertools.pairwise(bounds), strict=True):
            node.client().execute_command("CLUSTER", "ADDSLOTS", *range(*slots))
        for other in self.nodes[1:]:
            self.nodes[0].client().execute_command("CLUSTER", "MEET", "127.0.0.1", other.port)
        for node in self.nodes:
            eventually(lambda node=node: self._is_complete(node))
        self._moved = {}  # slots to nodes

    def client(self, keys):
        return self.node_of(keys).client()

    def node_of(self, keys):
        """The server that has these keys now."""
        return self._node(self._slot(keys))

    def moving(self, keys):
        """Move the slot of a prefix to the other one of two nodes; yield at "opened" and "emptied".

        Until the end the first node sends clients that ask for a key that it lacks to the second.
        """
        slot = self._slot(keys)
        source = self._node(slot)
        (target,) = (node for node in self.nodes if node is not source)
        ours, theirs = source.client(), target.client()
        here, there = (each.execute_command("CLUSTER", "MYID") for each in (ours, theirs))
        theirs.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", here)
        ours.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", there)
        yield "opened"
        while found := ours.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1):
            ours.execute_command("MIGRATE", "127.0.0.1", target.port, *found, 0, LONG * 1000)
        yield "emptied"
        for client in (theirs, ours):
            client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", there)
        self._moved[slot] = target

    @staticmethod
    def _slot(keys):
        from redis.crc import key_slot

        return key_slot(keys.queue)

    def _node(self, slot):
        return self._moved.get(slot, self.nodes[bisect.bisect_right(self._starts, slot) - 1])

    def close(self):
        for node in self.nodes:
            node.close()

    def _is_complete(self, node):
        info = node.client().execute_command("CLUSTER", "INFO")
        slots = node.client().execute_command("CLUSTER", "SLOTS")
        return b"cluster_state:ok" in info and len(slots) == len(self.nodes)


class Sentinel:
    """A master, a replica, and a sentinel that fails over when it is asked to.

    Attributes:
        patience: seconds that it may take; one that was stalled for 2 s does nothing for 30.
    """

    patience = 100

    def __init__(self, folder):
        self.master = RedisServer(repl_diskless_sync_delay=0)
        self.replica = RedisServer()
        self.replica.client().execute_command("REPLICAOF", "127.0.0.1", self.master.port)
        replication = self.replica.client().info
        eventually(lambda: replication("replication")["master_link_status"] == "up")
        self._port = reserve_port()
        self.port = self._port.getsockname()[1]
        self.url = f"redis+sentinel://127.0.0.1:{self.port}/models"
        config = folder / "sentinel.conf"
        config.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor models 127.0.0.1 {self.master.port} 1\n"
            # Long: a stalled server is not down, and a replica that was without its master for more
            # than ten times as long when the sentinel saw that would never take its place.
            "sentinel down-after-milliseconds models 60000\n"
            "sentinel failover-timeout models 2000\n"
        )
        with open(folder / "log", "wb") as log:
            command = [find_server(), str(config), "--sentinel"]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=-3)
        eventually(self._knows_the_replica, self.patience)

    def client(self, keys):
        return self.master.client()

    def fail_over(self):
        """Kill the master, and wait until the replica is one."""
        self.master.kill()
        eventually(self._has_failed_over, self.patience)

    def close(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(LONG)
        self._port.close()
        self.master.close()
        self.replica.close()

    def _has_failed_over(self):
        import redis

        with contextlib.suppress(redis.ConnectionError):  # the sentinel closes all there are then
            if self.replica.client().info("replication")["role"] == "master":
                return True
        # refused where it is under way, and to be asked again where it was given up
        with contextlib.suppress(redis.RedisError), self._asked() as sentinel:
            sentinel.execute_command("SENTINEL", "FAILOVER", "models")
        return False

    def _knows_the_replica(self):
        import redis

        with contextlib.suppress(redis.ConnectionError), self._asked() as sentinel:
            return sentinel.execute_command("SENTINEL", "REPLICAS", "models")

    def _asked(self):
        import redis

        return contextlib.closing(redis.Redis(port=self.port, protocol=2))


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A folder with a key and a certificate of 127.0.0.1, and with those of a stranger."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    folder = tmp_path_factory.mktemp("certificate")
    for name in ("", "other-"):
        command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext"
        command += f" subjectAltName=IP:127.0.0.1 -keyout {name}key.pem -out {name}cert.pem"
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True, timeout=LONG)
    return folder


@pytest.fixture
def places(request, tmp_path):
    """Makes places, which end after their clients and workers."""
    made = []

    def make(kind, **options):
        if kind == "tls":
            made.append(Tls(request.getfixturevalue("certificate")))
        elif kind == "sentinel":
            made.append(Sentinel(tmp_path))
        else:
            made.append({"plain": Plain, "cluster": Cluster}[kind](**options))
        return made[-1]

    yield make
    for place in made:
        place.close()
