"""The routes of a RedisStreamer and of a RedisWorker."""

import pytest
from process_models import BadInit, double
from waits import LONG, eventually

pytest.importorskip("redis")
pytest.importorskip("jsonschema")

import jsonschema
from redis_server import NEEDS_SERVER
from redis_tools import ThreadedWorker
from web_clients import BEARER, TOKEN

from service_streamer import RedisWorker

pytest_plugins = ["redis_fixtures", "redis_places", "web_fixtures"]
pytestmark = NEEDS_SERVER
SHARDS = 4


def shown(client):
    document = client.get("/stats").json
    jsonschema.validate(document, client.get("/stats/schema").json)
    return document["streamers"]["default"]


@pytest.mark.often
def test_a_client_is_ready_while_a_worker_lives(serves, make, workers, prefix):
    streamer = make()
    client = serves(streamer, TOKEN)
    assert client.ready() == (503, "no worker has joined the queue at the broker")
    worker = workers(double)
    eventually(lambda: client.ready() == (200, ""))
    assert streamer.predict([1, 2]) == [2, 4]
    eventually(lambda: shown(client)["stats"]["completed"] == 1)
    stream = shown(client)["stats"]["stream"]
    assert [each["name"].encode() for each in stream["consumers"]] == [worker.name]
    assert shown(client)["verdict"] == streamer.explain().splitlines()[-1]
    answer = client.post("/control/default", {"batch_size": 9}, BEARER)
    assert (answer.status, "workers" in answer.json["error"]) == (409, True)
    worker.close()
    eventually(lambda: client.ready()[0] == 503)


def test_a_client_may_be_ready_without_workers_but_not_without_its_broker(
    serves_asgi, servers, make
):
    server = servers()
    client = serves_asgi(make(server), ready_without_workers=True)
    eventually(lambda: client.ready() == (200, ""))
    server.kill()
    eventually(lambda: client.ready()[1].startswith("the broker cannot be used: "))


def test_a_client_whose_broker_goes_away_is_not_ready(serves_asgi, servers, make, workers):
    server = servers()
    client = serves_asgi(make(server))
    workers(double, server=server)
    eventually(lambda: client.ready() == (200, ""))
    server.kill()
    eventually(lambda: client.ready()[1].startswith("the broker cannot be used: "))
    server.start()
    eventually(lambda: client.ready() == (200, ""))


def test_a_queue_at_the_broker_counts(serves_asgi, make, server, prefix):
    streamer = make(max_queue=4)
    client = serves_asgi(streamer, ready_queue_share=0.5)
    futures = [streamer.submit([number]) for number in range(3)]
    eventually(lambda: shown(client)["stats"]["stream"]["length"] == 3)
    assert client.ready()[0] == 503
    for future in futures:
        future.cancel()


# ------------------------------------------------------------------------- shards


def test_a_client_is_ready_while_a_node_of_other_shards_does_not_answer(serves_asgi, make, places):
    place = places("cluster", nodes=2)
    first = place.nodes[0]
    streamer = make(place, shards=SHARDS)
    while place.node_of(streamer._backend._keys) is not first:
        streamer = make(place, shards=SHARDS)
    client = serves_asgi(streamer, ready_without_workers=True)
    eventually(lambda: client.ready() == (200, ""))
    place.nodes[1].freeze()
    try:
        eventually(lambda: "did not answer" in shown(client)["reason"])
        assert client.ready() == (200, "")
    finally:
        place.nodes[1].thaw()


def test_the_queue_of_a_client_is_that_of_its_shard(serves_asgi, make):
    streamer, other = (make(max_queue=4, shards=2) for _ in range(2))
    while other._backend._keys.queue == streamer._backend._keys.queue:
        other = make(max_queue=4, shards=2)
    client = serves_asgi(streamer, ready_queue_share=0.5, ready_without_workers=True)
    futures = [other.submit([number]) for number in range(4)]
    eventually(lambda: shown(client)["stats"]["stream"]["length"] == 4)
    assert shown(client)["ready"]
    assert client.ready() == (200, "")
    futures += [streamer.submit([number]) for number in range(3)]
    eventually(lambda: client.ready()[0] == 503)
    assert client.ready()[1] == "the queue is 75% full: 3 of 4"
    for future in futures:
        future.cancel()


# ------------------------------------------------------------------------- workers


@pytest.mark.often
def test_a_worker_is_ready_when_its_model_is_loaded(serves_asgi, server, prefix, make, threads):
    worker = RedisWorker(double, 8, redis_broker=server.url, prefix=prefix)
    client = serves_asgi(worker, TOKEN)
    assert client.ready() == (503, "the worker is starting")
    assert client.get("/live").status == 200
    threads.run(worker.run_forever)
    eventually(lambda: client.ready() == (200, ""))
    make().predict([1, 2, 3])
    eventually(lambda: shown(client)["stats"]["items"] == 3)
    assert shown(client)["kind"] == "RedisWorker"
    assert client.post("/control/default", {"batch_size": 9}, BEARER).status == 409
    worker.close()
    assert client.ready() == (503, "the worker is stopping")
    threads.join()


def test_a_worker_without_its_broker_is_not_ready(serves_asgi, servers, prefix):
    server = servers()
    worker = ThreadedWorker(double, server, prefix)
    client = serves_asgi(worker.worker)
    eventually(lambda: client.ready() == (200, ""))
    server.kill()
    eventually(lambda: client.ready()[1].startswith("the broker has been unreachable for "))
    server.start()
    eventually(lambda: client.ready() == (200, ""))
    worker.close()


def test_a_worker_whose_model_cannot_be_loaded_is_not_ready(serves_asgi, server, prefix):
    worker = ThreadedWorker(BadInit, server, prefix, model_init_args=["raise"])
    client = serves_asgi(worker.worker)
    eventually(lambda: client.ready()[0] == 503 and "starting" not in client.ready()[1])
    worker._thread.join(LONG)
