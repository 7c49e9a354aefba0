"""What the server counts of its requests, as metrics of Prometheus."""

import asyncio

import pytest

pytest.importorskip("http_servers")
pytest.importorskip("prometheus_client")

from http_servers import App
from prometheus_client import CollectorRegistry
from scrapes import scrape
from server_models import MODELS
from thread_models import Gate
from waits import LONG, eventually

from service_streamer.hub import ModelSpec
from service_streamer.server._metrics import ServerCollector

pytest_plugins = ["grpc_fixtures"]


def scraped(service):
    registry = CollectorRegistry()
    registry.register(ServerCollector(service.counts))
    return scrape(registry)


def count(service, route, code, protocol="http"):
    labels = {"protocol": protocol, "route": route, "code": str(code)}
    return scraped(service)("server_request_seconds_count", **labels)


def in_progress(service):
    return scraped(service)("server_requests_in_progress", protocol="http")


def test_requests_are_counted_by_route_and_status(app):
    for _ in range(2):
        app.ask("POST", "/v1/models/double:predict", {"instances": [1]})
    app.ask("POST", "/v1/models/fails:predict", {"instances": [1]})
    app.ask("POST", "/v2/models/sums/infer", {"inputs": []})
    app.ask("GET", "/v2/models/none/infer")
    app.ask("GET", "/v2/none/of/these")
    app.ask("GET", "/v2/health/live")
    wanted = {("predict", 200): 2, ("predict", 500): 1, ("infer", 400): 1, ("infer", 405): 1,
              ("unknown", 404): 1, ("live", 200): 1}  # fmt: skip
    assert {each: count(app.service, *each) for each in wanted} == wanted
    assert len(app.service.counts["http"].times) == len(wanted)
    assert in_progress(app.service) == 0


def test_the_times_of_requests_are_a_histogram(app):
    app.ask("POST", "/v1/models/double:predict", {"instances": [1]})
    found = scraped(app.service)
    labels = {"protocol": "http", "route": "predict", "code": "200"}
    assert found("server_request_seconds_bucket", le="+Inf", **labels) == 1
    assert found("server_request_seconds_sum", **labels) > 0


def test_a_request_is_in_progress_until_its_client_goes(server_hubs):
    gate = Gate()
    app = App(server_hubs({"gate": ModelSpec(gate, batch_size=1)}))

    async def main():
        task = asyncio.ensure_future(
            app.answer("POST", "/v1/models/gate:predict", {"instances": [1]})
        )
        await asyncio.to_thread(gate.wait_entered)
        assert in_progress(app.service) == 1
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    gate.open()
    assert in_progress(app.service) == 0
    assert count(app.service, "predict", 499) == 1


def test_a_stream_is_in_progress_until_its_end(http_servers, send):
    server = http_servers(MODELS)
    with send(server, "/v1/models/counts:stream", {"instance": 1 << 40}).makefile("rb") as answer:
        while not answer.readline().startswith(b"data:"):
            pass
        assert in_progress(server.service) == 1
        assert count(server.service, "stream", 200) == 1
    for connection in send.connections:
        connection.close()
    eventually(lambda: in_progress(server.service) == 0, LONG)


def test_a_body_that_is_too_large_is_counted(http_servers):
    server = http_servers(MODELS, limits=[10])
    assert server.ask("POST", "/v1/models/double:predict", {"instances": [1, 2]}).status == 413
    assert count(server.service, "predict", 413) == 1


def test_calls_of_grpc_are_counted_by_method_and_code(grpc_servers, triton_clients):
    server = grpc_servers(MODELS)
    client = triton_clients(server)
    client.is_server_live()
    with pytest.raises(Exception, match="none"):
        client.get_model_metadata("none")
    # The client may have the answer before the call has ended.
    eventually(lambda: count(server.service, "ServerLive", "OK", "grpc") == 1, LONG)
    eventually(lambda: count(server.service, "ModelMetadata", "NOT_FOUND", "grpc") == 1, LONG)
