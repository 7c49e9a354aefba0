"""What goes wrong with a broker is said by its cause, and whether it may pass by itself."""

import pickle
import re
import socket
import threading

import pytest
from waits import eventually

pytest.importorskip("redis")

import redis

from service_streamer import BrokerError, StreamerError
from service_streamer._redis.connection.broker import Broker
from service_streamer._redis.connection.failures import explain_error
from service_streamer._redis.protocol import Keys

pytest_plugins = ["redis_fixtures"]

QUEUE = Keys("test").queue


def test_no_server_is_unreachable(refusal, port):
    error = refusal(f"127.0.0.1:{port}")
    assert re.search(r"the Redis broker 127.0.0.1:\d+ is unreachable: .*refused", str(error))
    assert error.transient
    assert isinstance(error, StreamerError)
    assert isinstance(error, ConnectionError)


def test_a_missing_or_wrong_password_is_named(refusal, servers):
    server = servers(requirepass="right")
    error = refusal(server.address)
    assert "password" in str(error)
    assert not error.transient
    error = refusal(f"redis://:wrong@{server.address}")
    assert "the user or the password" in str(error)
    assert "wrong" not in str(error).replace("WRONG", "")
    Broker(server.url, QUEUE).check()


def test_a_missing_permission_is_named(redis_server):
    redis_server.client().execute_command("ACL", "SETUSER", "w", "on", ">p", "+ping", "+time")
    connection = Broker(f"redis://w:p@{redis_server.address}", QUEUE).connection()
    assert connection.execute("PING") == b"PONG"
    with pytest.raises(BrokerError, match="permission") as caught:
        connection.execute("XLEN", QUEUE)
    assert not caught.value.transient


def test_a_replica_is_distinguished_from_its_master(redis_server, servers):
    replica = servers()
    replica.client().execute_command("REPLICAOF", "127.0.0.1", redis_server.port)
    eventually(lambda: replica.client().info("replication")["master_link_status"] == "up")
    connection = Broker(replica.address, QUEUE).connection()
    error, read = connection.pipeline([("XADD", QUEUE, "*", "m", b"x"), ("XLEN", QUEUE)])
    assert "replica" in str(error)
    assert not error.transient
    assert read == 0
    # by the next command its name may lead to the master
    connection.execute("PING")
    assert connection.made == 2


def test_a_full_memory_is_reported(servers):
    server = servers(maxmemory="3mb")
    connection = Broker(server.address, QUEUE).connection()
    large = ("XADD", QUEUE, "*", "m", bytes(2_000_000))
    replies = connection.pipeline([large, large, large, ("XLEN", QUEUE)])
    refused = [reply for reply in replies if isinstance(reply, BrokerError)]
    assert "is out of memory" in str(refused[0])
    assert not refused[0].transient
    assert connection.made == 1


def test_a_server_that_is_too_old_is_refused(fake, refusal):
    error = refusal(fake(INFO=b"$20\r\nredis_version:5.0.14\r\n").address)
    assert re.search(r"5\.0\b.*\b6\.2\b", str(error))
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


def test_a_server_that_is_not_redis_is_reported(fake, refusal):
    error = refusal(fake(TIME=b"HTTP/1.1 400 Bad Request\r\n\r\n").address)
    assert "Redis server" in str(error)
    assert not error.transient


def test_a_server_that_is_starting_may_be_ready_later(fake, refusal):
    error = refusal(fake(TIME=b"-LOADING Redis is loading the dataset in memory\r\n").address)
    assert "is starting" in str(error)
    assert error.transient


def test_a_master_without_its_replicas_may_have_them_later():
    error = redis.exceptions.ResponseError("NOREPLICAS Not enough good replicas to write.")
    told, transient = explain_error(error, moves=False)
    assert str(error) in told
    assert transient


def test_a_server_that_does_not_answer_is_given_up(refusal, servers):
    server = servers()
    server.freeze()
    error = refusal(f"redis://{server.address}?socket_timeout=0.1")
    assert "does not answer" in str(error)
    assert error.transient


def test_a_node_of_a_cluster_says_how_it_is_to_be_addressed(fake, refusal):
    error = refusal(fake(PING=b"-MOVED 1 127.0.0.1:1\r\n").address)
    assert "redis+cluster://" in str(error)
    assert not error.transient


def test_errors_arrive_in_other_processes():
    error = pickle.loads(pickle.dumps(BrokerError("words", True)))
    assert (str(error), error.transient) == ("words", True)


def test_a_fake_server_bears_a_connection_that_is_cut(fake):
    """What a thread of it raised would be held against any test."""
    server = fake()
    before = threading.active_count()
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.sendall(b"*1\r\n$4\r\nPING\r\n")
        assert sock.recv(100) == b"+PONG\r\n"
        sock.sendall(b"*1\r\n")
    eventually(lambda: threading.active_count() <= before)
