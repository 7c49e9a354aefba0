"""Clients and workers over brokers of every kind: TLS, Sentinel, Cluster, users of few rights."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from asking import Asking
from waits import LONG, eventually

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER
from redis_tools import new_prefix

import service_streamer
from service_streamer import BrokerError, RedisStreamer, RedisWorker
from service_streamer._redis.client import session
from service_streamer._redis.connection import transport
from service_streamer._redis.protocol import GROUP, Keys

pytest_plugins = ["redis_fixtures", "redis_places"]
pytestmark = [*NEEDS_SERVER, pytest.mark.often]

README = Path(service_streamer.__file__).parent / "_redis" / "README.md"

KINDS = ["tls", "cluster", "sentinel"]


@pytest.fixture(params=KINDS)
def place(places, request):
    return places(request.param)


@pytest.fixture
def meet(servers, places, make, workers):
    """A client and a worker that meet at an address; returns the client."""

    def meet(address, **options):
        prefix = options.setdefault("prefix", new_prefix())
        workers(server=SimpleNamespace(url=address), prefix=prefix)
        return make(address, **options)

    return meet


# -------------------------------------------------------------------- every kind


def test_requests_are_answered_and_nothing_stays(place, meet):
    prefix = new_prefix()
    streamer = meet(place.url, prefix=prefix)
    streamer.wait_ready(LONG)
    assert streamer.predict(list(range(200))) == list(range(0, 400, 2))
    assert streamer.predict([bytes(2_000_000)]) == [bytes(4_000_000)]
    eventually(lambda: streamer.stats().stream.length == 0)
    keys = place.client(Keys(prefix)).keys("{ss:*")
    assert all(key.startswith(b"{ss:%b}:" % prefix.encode()) for key in keys)


def test_killed_connections_cost_only_time(place, meet):
    prefix = new_prefix()
    streamer = meet(place.url, prefix=prefix)
    client = place.client(Keys(prefix))
    with Asking(streamer, 4) as asking:
        for _ in range(5):  # and each time one more answer
            before = asking.answered
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            eventually(lambda before=before: asking.answered > before or asking.failed())


# ------------------------------------------------------------------------- TLS


def test_tls_in_a_patched_process(places, meet, child):
    pytest.importorskip("gevent")
    url, prefix = places("tls").url, new_prefix()
    meet(url, prefix=prefix).wait_ready(LONG)
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
        url,
        prefix,
    )
    assert done.stdout == "True\n"


@pytest.mark.parametrize("trusted", ["", "?ssl_ca_certs={folder}/other-cert.pem"])
def test_a_wrong_certificate_is_an_error_of_both_sides(places, certificate, trusted):
    words = "certificate that is not trusted: "
    url = f"rediss://{places('tls').address}{trusted.format(folder=certificate)}"
    with RedisStreamer(url, new_prefix()) as streamer, pytest.raises(BrokerError, match=words):
        streamer.predict([1], timeout=LONG)
    with pytest.raises(BrokerError, match=words):
        RedisWorker(str, 8, redis_broker=url, prefix=new_prefix()).run_forever()


@pytest.mark.parametrize("option", ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])
def test_a_file_of_tls_that_is_missing_is_named_at_once(option):
    url = f"rediss://localhost?{option}=/no/such/file"
    with pytest.raises(ValueError, match=f"{option}.*'/no/such/file'"):
        RedisStreamer(url)
    with pytest.raises(ValueError, match=f"{option}.*'/no/such/file'"):
        RedisWorker(str, 8, redis_broker=url)


# ---------------------------------------------------------------------- Cluster


def test_prefixes_of_a_cluster_are_served_by_the_node_that_has_them(places, meet):
    place = places("cluster")
    used = set()
    for number in range(100):
        if len(used) == 2:
            break
        prefix = f"{new_prefix()}-{number}"
        node = place.client(Keys(prefix)).get_connection_kwargs()["port"]
        if node in used:
            continue
        used.add(node)
        assert meet(place.url, prefix=prefix).predict([number]) == [2 * number]
        assert place.client(Keys(prefix)).xinfo_groups(Keys(prefix).queue)[0]["name"] == GROUP
    assert len(used) == 2


# ---------------------------------------------------------------------- Sentinel


@pytest.mark.timeout(300)
def test_a_failover_costs_only_time(places, meet, monkeypatch):
    place = places("sentinel")
    monkeypatch.setattr(session, "PATIENCE", place.patience)
    streamer = meet(place.url)
    with Asking(streamer, 4, timeout=place.patience):
        eventually(lambda: streamer.stats().completed > 100)
        place.fail_over()
        before = streamer.stats().completed
        eventually(lambda: streamer.stats().completed > before + 100)


# ------------------------------------------------------------- rights, and parsers


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
    monkeypatch.setattr(transport, "hiredis", None)
    streamer = meet(servers().address)
    assert streamer.predict(list(range(100))) == list(range(0, 200, 2))
    assert streamer.predict([bytes(1_000_000)]) == [bytes(2_000_000)]
