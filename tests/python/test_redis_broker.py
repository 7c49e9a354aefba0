"""Connections to the broker: every kind of address, and what goes wrong said by its cause."""

import gc
import pickle
import re
import socket
import ssl
import struct
import threading
import time
import warnings

import pytest
import redis
from conftest import LONG, eventually
from redis.connection import SSLConnection
from redis_server import FakeServer, RedisServer, free_port

from service_streamer import BrokerError, StreamerError
from service_streamer._redis.broker import Broker, Clock
from service_streamer._redis.failures import words
from service_streamer._redis.links import native
from service_streamer._redis.protocol import Keys

QUEUE = Keys("test").queue


@pytest.fixture
def fake():
    made = []

    def make(**answers):
        made.append(FakeServer(answers))
        return made[-1]

    yield make
    for server in made:
        server.close()


def refusal(address):
    """The error that connecting there raises."""
    with pytest.raises(BrokerError) as caught:
        Broker(address, QUEUE).check()
    return caught.value


# --------------------------------------------------------------------- addresses


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
    with pytest.raises(TypeError, match=r"not \('localhost', 6379\)$"):
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


# ---------------------------------------------------------------- what goes wrong


def test_no_server_is_unreachable():
    error = refusal(f"127.0.0.1:{free_port()}")
    assert re.search(r"the Redis broker 127.0.0.1:\d+ is unreachable: .*refused", str(error))
    assert error.transient
    assert isinstance(error, StreamerError)
    assert isinstance(error, ConnectionError)


def test_a_missing_or_wrong_password_is_named():
    server = RedisServer(requirepass="right")
    try:
        error = refusal(server.address)
        assert "asks for a password" in str(error)
        assert not error.transient
        error = refusal(f"redis://:wrong@{server.address}")
        assert "refuses the user or the password" in str(error)
        assert "wrong" not in str(error).replace("WRONG", "")
        Broker(server.url, QUEUE).check()
    finally:
        server.close()


def test_a_user_without_the_permission_is_told_so(redis_server):
    redis_server.client().execute_command("ACL", "SETUSER", "w", "on", ">p", "+ping", "+time")
    connection = Broker(f"redis://w:p@{redis_server.address}", QUEUE).connection()
    assert connection.execute("PING") == b"PONG"
    with pytest.raises(BrokerError, match="does not permit its user what is needed") as caught:
        connection.execute("XLEN", QUEUE)
    assert not caught.value.transient


def test_a_replica_is_told_from_its_master(redis_server):
    replica = RedisServer()
    try:
        replica.client().execute_command("REPLICAOF", "127.0.0.1", redis_server.port)
        eventually(lambda: replica.client().info("replication")["master_link_status"] == "up")
        connection = Broker(replica.address, QUEUE).connection()
        error, read = connection.pipeline([("XADD", QUEUE, "*", "m", b"x"), ("XLEN", QUEUE)])
        assert "is a replica that is only to be read" in str(error)
        assert not error.transient
        assert read == 0
        # by the next command its name may lead to the master
        connection.execute("PING")
        assert connection.made == 2
    finally:
        replica.close()


def test_a_full_memory_is_told():
    server = RedisServer(maxmemory="3mb")
    try:
        connection = Broker(server.address, QUEUE).connection()
        large = ("XADD", QUEUE, "*", "m", bytes(2_000_000))
        replies = connection.pipeline([large, large, large, ("XLEN", QUEUE)])
        refused = [reply for reply in replies if isinstance(reply, BrokerError)]
        assert "is out of memory" in str(refused[0])
        assert not refused[0].transient
        assert connection.made == 1
    finally:
        server.close()


def test_a_server_that_is_too_old_is_refused(fake):
    error = refusal(fake(INFO=b"$20\r\nredis_version:5.0.14\r\n").address)
    assert "is version 5.0: 6.2 is needed" in str(error)
    assert not error.transient


def test_what_a_user_may_not_ask_is_left_unasked(fake):
    broker = Broker(fake(INFO=b"-NOPERM no\r\n").address, QUEUE)
    broker.check()
    assert broker.message_limit == 512 * 2**20
    assert broker.clock.now_ms() // 60_000 == 1_700_000_000_000 // 60_000


def test_the_limit_of_a_message_is_the_brokers(redis_server):
    redis_server.client().config_set("proto-max-bulk-len", "1mb")
    broker = Broker(redis_server.address, QUEUE)
    broker.check()
    assert broker.message_limit == 2**20


def test_what_is_no_redis_server_is_told(fake):
    error = refusal(fake(TIME=b"HTTP/1.1 400 Bad Request\r\n\r\n").address)
    assert "does not answer as a Redis server does" in str(error)
    assert not error.transient


def test_a_server_that_is_starting_may_be_ready_later(fake):
    error = refusal(fake(TIME=b"-LOADING Redis is loading the dataset in memory\r\n").address)
    assert "is starting" in str(error)
    assert error.transient


def test_a_master_without_its_replicas_may_have_them_later():
    error = redis.exceptions.ResponseError("NOREPLICAS Not enough good replicas to write.")
    assert words(error, moves=False) == ("has too few replicas now: " + str(error), True)


def test_a_server_that_does_not_answer_is_given_up():
    server = RedisServer()
    try:
        server.freeze()
        error = refusal(f"redis://{server.address}?socket_timeout=0.1")
        assert "does not answer" in str(error)
        assert error.transient
    finally:
        server.close()


def test_a_node_of_a_cluster_says_how_it_is_to_be_addressed(fake):
    error = refusal(fake(PING=b"-MOVED 1 127.0.0.1:1\r\n").address)
    assert "redis+cluster://" in str(error)
    assert not error.transient


def test_errors_arrive_in_other_processes():
    error = pickle.loads(pickle.dumps(BrokerError("words", True)))
    assert (str(error), error.transient) == ("words", True)


# ------------------------------------------------------------------- connections


def test_a_connection_that_was_killed_is_made_again(redis_server):
    connection = Broker(redis_server.address, QUEUE).connection()
    connection.execute("PING")
    redis_server.client().execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    with pytest.raises(BrokerError, match="unreachable") as caught:
        connection.execute("PING")
    assert caught.value.transient
    assert connection.execute("PING") == b"PONG"
    assert connection.made == 2


def test_a_command_that_blocks_can_be_interrupted(redis_server, threads):
    connection = Broker(redis_server.address, QUEUE).connection()
    connection.connect()
    begin = time.monotonic()
    threads.run(connection.execute, "XREAD", "BLOCK", 5000, "STREAMS", QUEUE, "$")
    client = redis_server.client()
    eventually(lambda: client.info("clients")["blocked_clients"] == 1)
    connection.interrupt()
    (error,) = threads.join()
    assert isinstance(error, BrokerError)
    assert time.monotonic() - begin < 5
    with pytest.raises(BrokerError, match="was ended"):
        connection.execute("PING")


def test_a_transaction_runs_all_or_nothing(redis_server):
    connection = Broker(redis_server.address, QUEUE).connection()
    connection.execute("SET", "text", "a")
    replies = connection.transaction([("XADD", "text", "*", "m", "b"), ("SET", "text", "c")])
    assert "WRONGTYPE" in str(replies[0])
    assert replies[1] == b"OK"
    with pytest.raises(Exception, match="wrong number of arguments"):
        connection.transaction([("SET", "text", "d"), ("SET", "text")])
    assert connection.execute("GET", "text") == b"c"


def test_nothing_is_sent_twice(fake):
    server = fake(XADD=None)
    connection = Broker(server.address, QUEUE).connection()
    with pytest.raises(BrokerError):
        connection.execute("XADD", QUEUE, "*", "m", "x")
    assert [command[0] for command in server.commands].count("XADD") == 1


def test_what_belongs_to_a_broker_is_gone_with_it(redis_server):
    client = redis_server.client()
    before = client.info("clients")["connected_clients"]
    for _ in range(5):
        Broker(redis_server.address, QUEUE).check()
    eventually(lambda: client.info("clients")["connected_clients"] == before)


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
    with pytest.raises(BrokerError, match="knows no service 'models'") as caught:
        connection.execute("PING")
    assert caught.value.transient


def test_who_is_no_longer_master_is_not_used(fake):
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


def test_a_cluster_is_found_by_one_of_its_nodes(cluster):
    broker = Broker(f"redis+cluster://localhost:1,{cluster.address}", QUEUE)
    connection = broker.connection()
    replies = connection.transaction(
        [("XADD", QUEUE, "*", "m", "x"), ("DEL", Keys("test").replies(bytes(16)))]
    )
    assert replies[1] == 0


def test_a_slot_that_nobody_serves_may_come_back(cluster):
    broker = Broker(f"redis+cluster://{cluster.address}", QUEUE)
    broker.check()
    cluster.client().execute_command("CLUSTER", "FLUSHSLOTS")
    error = refusal(f"redis+cluster://{cluster.address}")
    assert error.transient


# --------------------------------------------------------------------- the clock


def test_the_clock_is_the_brokers_whatever_ours_says():
    clock = Clock()
    now = time.monotonic()
    clock.set(now - 0.25, now + 0.25, [b"5000", b"250000"])
    assert clock.to_redis(now) == 5_000_250
    assert clock.to_redis(None) == 0
    assert clock.to_monotonic(0) is None
    assert clock.to_monotonic(5_001_250) == pytest.approx(now + 1)
    assert clock.to_redis(now - 1e9) == 1  # a deadline long ago is still one


def test_the_clock_is_asked_again_only_when_the_estimate_is_old(fake):
    server = fake()
    broker = Broker(server.address, QUEUE)
    connection = broker.connection()
    connection.connect()
    for _ in range(3):
        broker.clock.refresh(connection)
    assert [command[0] for command in server.commands].count("TIME") == 1


def test_connections_of_several_threads_do_not_meet(redis_server, threads):
    broker = Broker(redis_server.address, QUEUE)
    start = threading.Barrier(8)

    def use(number):
        connection = broker.connection()
        start.wait(LONG)
        for i in range(200):
            assert connection.execute("ECHO", f"{number}-{i}") == f"{number}-{i}".encode()

    for number in range(8):
        threads.run(use, number)
    assert threads.join() == [None] * 8


def test_a_connection_that_is_reset_before_the_handshake_is_closed(monkeypatch):
    """By us: where Python leaves that to the garbage collector, it warns of it."""
    create_context = ssl.create_default_context
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def create_when_it_was_reset():
            peer, _ = listener.accept()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
            return create_context()

        monkeypatch.setattr(ssl, "create_default_context", create_when_it_was_reset)
        link = native(SSLConnection)(port=listener.getsockname()[1])
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with pytest.raises(redis.ConnectionError):
                link.connect()
            gc.collect()
    assert [str(each.message) for each in warned] == []
