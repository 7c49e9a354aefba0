"""Models of a hub that run in workers at a broker."""

import pytest
from making import drop, made_by
from waits import LONG, eventually

pytest.importorskip("redis")

from process_models import double
from redis_server import NEEDS_SERVER

from service_streamer import BrokerError, RedisStreamer
from service_streamer.hub import ModelHub, ModelSpec

pytest_plugins = ["redis_fixtures"]
pytestmark = NEEDS_SERVER


@pytest.fixture
def hub_of(prefix):
    """Makes a hub whose model "remote" is at a broker, with a model that is here."""

    def make(server):
        remote = ModelSpec.factory(lambda: RedisStreamer(server.url, prefix))
        local = ModelSpec(double, batch_size=8)
        return ModelHub({"remote": remote, "local": local}, max_loaded=1)

    yield from made_by(make, drop)


def state(hub, name="remote"):
    return hub.status()[name].versions[1].state


def test_a_remote_model_is_loaded_used_and_unloaded(hub_of, server, workers):
    workers()
    hub = hub_of(server)
    assert hub.predict("remote", [1, 2]) == [2, 4]
    assert list(hub["remote"].stream(3)) == [6]
    assert hub.predict("local", [1]) == [2]  # and makes room
    assert state(hub) == "unloaded"
    assert hub.submit("remote", [3]).result(LONG) == [6]
    hub.unload("remote")
    assert state(hub) == "unloaded"
    assert hub["remote"].stats().completed == 1


def test_a_broker_that_is_away_holds_up_no_other_model(hub_of, servers, workers):
    server = servers()
    hub = hub_of(server)
    server.stop()
    with pytest.raises(BrokerError, match=str(server.port)):
        hub.predict("remote", [1], timeout=LONG)
    assert hub.predict("local", [1]) == [2]
    with pytest.raises(BrokerError):
        hub.predict("remote", [1], timeout=LONG)
    server.start()
    workers(server=server)
    assert hub.predict("remote", [1], timeout=LONG) == [2]
    assert hub.status()["remote"].versions[1].error is None


def test_a_broker_that_goes_while_the_model_is_loaded(hub_of, servers, workers):
    server = servers()
    workers(server=server)
    hub = hub_of(server)
    assert hub.predict("remote", [1]) == [2]
    server.kill()
    future = hub.submit("remote", [2])
    server.start()
    assert future.result(LONG) == [4]
    eventually(lambda: state(hub) == "ready")


def test_requests_wait_at_the_broker_for_a_worker(hub_of, server, workers):
    hub = hub_of(server)
    hub.load("remote", timeout=LONG)
    future = hub.submit("remote", [1], timeout=LONG)
    workers()
    assert future.result() == [2]
