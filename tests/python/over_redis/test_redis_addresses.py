"""Every kind of address of a broker leads there; what means nothing is refused."""

import re

import pytest
from waits import LONG, eventually

pytest.importorskip("redis")

from redis_server import RedisServer

from service_streamer import BrokerError
from service_streamer._redis.connection.broker import Broker
from service_streamer._redis.protocol import Keys

pytest_plugins = ["redis_fixtures"]

QUEUE = Keys("test").queue


def test_every_kind_of_address_leads_there(redis_server):
    port = redis_server.port
    client = redis_server.client()
    client.execute_command("ACL", "SETUSER", "web", "on", ">p@ss/w:rd", "allkeys", "+@all")
    for number, address in enumerate(
        [
            f"127.0.0.1:{port}",
            f"redis://127.0.0.1:{port}",
            f"redis://127.0.0.1:{port}/3",
            f"redis://web:p%40ss%2Fw%3Ard@127.0.0.1:{port}/3",
            f"redis://127.0.0.1:{port}/3?socket_timeout=7&client_name=me",
            f"unix://{redis_server.unix_socket}?db=3",
        ]
    ):
        connection = Broker(address, QUEUE).connection()
        connection.execute("SET", f"key{number}", address)
        connection.close()
    assert client.get("key1") == f"redis://127.0.0.1:{port}".encode()
    assert redis_server.client(db=3).dbsize() == 4
    assert client.dbsize() == 2


@pytest.mark.parametrize(
    "address",
    [
        *("", ":", ":6379", "localhost:port", "localhost:70000", "http://localhost", "redis+x://a"),
        *("redis+sentinel://localhost:26379", "redis+sentinel://:1/service"),
        *("redis+cluster://localhost/3", "redis://localhost?no_such_option=1"),
        "redis://localhost?socket_timeout=soon",
    ],
)
def test_an_address_that_means_nothing_is_refused_at_once(address):
    with pytest.raises(ValueError, match=re.escape(repr(address))):
        Broker(address, QUEUE)


def test_an_address_that_is_no_str_is_refused():
    with pytest.raises(TypeError, match=r"(?m)not \('localhost', 6379\)$"):
        Broker(("localhost", 6379), QUEUE)


@pytest.mark.parametrize(
    "address",
    [
        "redis://user:hidden@localhost:1/?bad=1",
        "rediss://:hid/d@en@localhost?bad=1",
        "redis+sentinel://u:hidden@localhost/service?sentinel_password=hidden&bad=1",
        "http://u:hidden@localhost",
    ],
)
def test_passwords_are_not_shown(address):
    with pytest.raises(ValueError, match=r"\*\*\*") as caught:
        Broker(address, QUEUE)
    assert "hid" not in str(caught.value)


# ------------------------------------------------------------ sentinel and cluster


def test_the_master_is_asked_of_the_sentinels(redis_server, fake):
    host, port = "127.0.0.1", str(redis_server.port)
    known = f"*2\r\n${len(host)}\r\n{host}\r\n${len(port)}\r\n{port}\r\n".encode()
    sentinel = fake(SENTINEL=known, AUTH=b"+OK\r\n")
    address = f"redis+sentinel://localhost:1,{sentinel.address}/models/2?sentinel_password=word"
    broker = Broker(address, QUEUE)
    assert broker.moves
    connection = broker.connection()
    connection.execute("SET", "key", "value")
    assert redis_server.client(db=2).get("key") == b"value"
    assert ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "models"] in sentinel.commands
    assert ["AUTH", "word"] in sentinel.commands

    sentinel.answers["SENTINEL"] = b"*-1\r\n"
    connection.close()
    with pytest.raises(BrokerError, match="'models'") as caught:
        connection.execute("PING")
    assert caught.value.transient


def test_a_former_master_is_not_used(fake, refusal):
    server = fake(ROLE=b"*1\r\n$5\r\nslave\r\n")
    port = str(server.port)
    known = f"*2\r\n$9\r\n127.0.0.1\r\n${len(port)}\r\n{port}\r\n".encode()
    error = refusal(f"redis+sentinel://{fake(SENTINEL=known).address}/models")
    assert "not the master" in str(error)
    assert error.transient


@pytest.fixture
def cluster():
    server = RedisServer(cluster_enabled="yes")
    client = server.client()
    client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
    eventually(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"), LONG)
    yield server
    server.close()


def test_a_slot_without_a_node_may_come_back(cluster, refusal):
    broker = Broker(f"redis+cluster://{cluster.address}", QUEUE)
    broker.check()
    cluster.client().execute_command("CLUSTER", "FLUSHSLOTS")
    error = refusal(f"redis+cluster://{cluster.address}")
    assert error.transient
