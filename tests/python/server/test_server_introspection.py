"""Introspection: statistics, configurations, the OpenAPI document and reflection."""

import asyncio
import threading
import time

import pytest

pytest.importorskip("server_protocols")
pytest.importorskip("starlette")

import grpc
import httpx
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.json_format import ParseDict
from http_servers import App
from server_models import sums
from starlette.applications import Starlette
from starlette.routing import Mount
from thread_models import double
from tritonclient.grpc import model_config_pb2, service_pb2
from tritonclient.utils import InferenceServerException
from waits import LONG

from service_streamer.hub import ModelSpec, TensorSpec, UnknownModel
from service_streamer.server import _service, create_app
from service_streamer.server._access import Access, TokenFile
from service_streamer.server._grpc import messages
from service_streamer.server._http import json_values, openapi
from service_streamer.server._service import Service

pytest_plugins = ["grpc_fixtures"]

MODELS = {
    "double": ModelSpec(double, batch_size=8),
    "idle": ModelSpec(double, batch_size=8),
    "sums": ModelSpec(
        sums,
        batch_size=4,
        max_latency=0.25,
        inputs={"a": TensorSpec("BYTES", (3, -1)), "b": TensorSpec("STRING")},
        outputs={"sum": TensorSpec("BF16", (2,))},
    ),
}


@pytest.fixture
def both(grpc_servers, triton_clients):
    """Serves one hub by HTTP and by gRPC. Returns the hub and the two clients."""

    def connect(**options):
        server = grpc_servers(MODELS, **options)
        return server.hub, App(server.hub, **options), triton_clients(server)

    return connect


def without_times(told):
    """Statistics as messages of Triton's client, without the time of the last request."""
    for each in told.model_stats:
        assert abs(each.last_inference / 1000 - time.time()) < LONG
        each.last_inference = 0
    return told


@pytest.mark.parametrize("path", ["double/stats", "double/versions/1/stats", "stats"])
def test_statistics_are_those_of_the_streamer(both, path):
    hub, app, client = both()
    hub.predict("double", [1, 2, 3])
    hub.predict("double", [4])
    with pytest.raises(TypeError):
        hub.predict("double", [None])
    by_http = app.ask("GET", f"/v2/models/{path}").json
    told = without_times(ParseDict(by_http, service_pb2.ModelStatisticsResponse()))
    model, version = ("", "") if path == "stats" else ("double", "1" if "versions" in path else "")
    assert told == without_times(client.get_inference_statistics(model, version))
    (found,) = told.model_stats
    assert (found.name, found.version) == ("double", "1")
    stats, times = hub["double"].stats(), found.inference_stats
    assert (found.inference_count, found.execution_count) == (stats.items, stats.batches)
    for duration, summary in (
        (times.success, stats.latency),
        (times.queue, stats.queue_time),
        (times.compute_infer, stats.service_time),
    ):
        assert (duration.count, duration.ns) == (summary.count, round(summary.total * 1e9))
        assert duration.ns > 0
    assert times.fail.count == 1
    for each in (times, *found.batch_stats):  # perf_analyzer ends if they differ
        assert each.compute_input.count == each.compute_infer.count == each.compute_output.count
    sizes = {each.batch_size: each.compute_infer.count for each in found.batch_stats}
    assert sizes == stats.batch_sizes


def test_a_configuration_is_what_is_known(both):
    hub, app, client = both()
    by_http = app.ask("GET", "/v2/models/sums/config").json
    assert by_http == {
        "name": "sums",
        "platform": "service-streamer",
        "backend": "service-streamer",
        "max_batch_size": 4,
        "input": [
            {"name": "a", "data_type": "TYPE_STRING", "dims": [3, -1]},
            {"name": "b", "data_type": "TYPE_STRING", "dims": []},
        ],
        "output": [{"name": "sum", "data_type": "TYPE_BF16", "dims": [2]}],
        "dynamic_batching": {},  # it is not loaded
    }
    hub.load("sums")
    by_http = app.ask("GET", "/v2/models/sums/versions/1/config").json
    assert by_http["dynamic_batching"] == {"max_queue_delay_microseconds": 250_000}
    told = ParseDict(by_http, model_config_pb2.ModelConfig())
    assert told == client.get_model_config("sums", "1").config


def test_an_idle_model_has_no_statistics_and_an_unknown_one_is_not_found(both):
    _, app, client = both()
    assert app.ask("GET", "/v2/models/idle/stats").json == {"model_stats": []}
    for path in ("none/stats", "double/versions/7/stats", "none/config", "a%2Fb/stats"):
        answer = app.ask("GET", f"/v2/models/{path}")
        assert (answer.status, answer.json["error"][:26]) == (404, "Request for unknown model:")
    assert app.ask("POST", "/v2/models/double/stats").status == 405
    for ask in (client.get_inference_statistics, client.get_model_config):
        for model, version in (("none", ""), ("double", "7"), ("double", "01")):
            with pytest.raises(InferenceServerException, match="Request for unknown model:"):
                ask(model, version)


def test_both_are_extensions_and_can_be_hidden(both):
    wanted = {"statistics", "model_configuration"}
    for shown in (True, False):
        _, app, client = both(introspection=shown)
        for extensions in (app.ask("GET", "/v2").json, client.get_server_metadata(as_json=True)):
            assert (wanted <= set(extensions["extensions"])) is shown
        for path in ("stats", "double/stats", "double/config"):
            assert (app.ask("GET", f"/v2/models/{path}").status == 404) is not shown
        if not shown:
            for ask in (client.get_inference_statistics, client.get_model_config):
                with pytest.raises(InferenceServerException) as caught:
                    ask("double")
                assert caught.value.status() == str(grpc.StatusCode.UNIMPLEMENTED)


def test_statistics_of_all_models_are_kept_for_a_moment(server_hubs, monkeypatch):
    service = Service(server_hubs({"double": ModelSpec(double, batch_size=8)}))
    kept = service.statistics()
    assert service.statistics() is kept
    monkeypatch.setattr(_service, "INDEX_AGE", -1.0)
    assert service.statistics() is not kept


def test_a_model_that_vanishes_meanwhile_has_no_spec(server_hubs, monkeypatch):
    hub = server_hubs({name: ModelSpec(double, batch_size=8) for name in ("a", "b")})
    get = type(hub).get

    def get_after(self, name):
        if name == "a":
            raise UnknownModel(name)
        return get(self, name)

    monkeypatch.setattr(type(hub), "get", get_after)
    assert [name for name, _ in Service(hub).specs()] == ["b"]


# ------------------------------------------------------------------------ openapi

OPENAPI = {
    **MODELS,
    "texts": ModelSpec(double, batch_size=8, inputs={"text": TensorSpec("STRING", (1,))}),
    "odd.name-1": ModelSpec(double, batch_size=8, inputs={"x": TensorSpec("FP16", (2, -1))}),
}


def operations(document):
    for path, item in document["paths"].items():
        for method, each in item.items():
            yield path, method, each


def references(value):
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from references(each)


def test_the_openapi_document_is_whole(server_hubs):
    answer = App(server_hubs(OPENAPI)).ask("GET", "/openapi.json")
    document = answer.json
    assert document["openapi"] == "3.1.0"
    for each in references(document):
        found = document
        for part in each.removeprefix("#/").split("/"):
            found = found[part]
    named = [each["operationId"] for _, _, each in operations(document)]
    assert len(named) == len(set(named)) > 12
    assert "security" not in document


def test_the_openapi_document_has_the_models(server_hubs):
    paths = App(server_hubs(OPENAPI)).ask("GET", "/openapi.json").json["paths"]
    for name in OPENAPI:
        assert {f"/v2/models/{name}/infer", f"/v1/models/{name}:predict"} <= paths.keys()
    assert {each for each in paths if each.endswith("/generate")} == {
        f"/v2/models/{name}/generate" for name in ("double", "idle", "sums", "texts")
    }

    def item(name):
        body = paths[f"/v1/models/{name}:predict"]["post"]["requestBody"]["content"]
        return body["application/json"]["schema"]["properties"]["instances"]["items"]

    assert item("double") == {}
    numbers = {"type": "array", "items": {"type": ["number", "null"]}}
    assert item("odd.name-1") == {
        "type": "array", "items": numbers, "minItems": 2, "maxItems": 2}  # fmt: skip
    assert item("sums")["required"] == ["a", "b"]
    assert item("sums")["properties"]["b"] == {"type": "string"}


def test_the_openapi_document_is_made_again_only_if_the_models_change(server_hubs, monkeypatch):
    made = []

    def dump(document):
        made.append(document)
        return json_values.dump(document)

    monkeypatch.setattr(openapi, "dump", dump)
    monkeypatch.setattr(openapi, "AGE", -1.0)
    app = App(server_hubs({"double": ModelSpec(double, batch_size=8)}))
    for _ in range(3):
        assert app.ask("GET", "/openapi.json").status == 200
    assert len(made) == 1
    specs = Service(server_hubs(OPENAPI)).specs()
    monkeypatch.setattr(Service, "specs", lambda service: specs)
    assert "/v2/models/texts/generate" in app.ask("GET", "/openapi.json").json["paths"]
    assert len(made) == 2


def test_each_fact_of_the_document_is_answered(app):
    document = app.ask("GET", "/openapi.json").json
    app.ask("POST", "/v2/repository/models/double/load")
    for path, method, each in operations(document):
        if method == "get":
            answer = app.ask("GET", path.replace("{model}", "double"))
            assert answer.status == 200, (path, answer.body)
            assert type(answer.json) is dict
            assert each["responses"].keys() == {"200", "default"}


def mounted(place, app, *request, **options):
    """Ask an application that is mounted in one of Starlette."""
    whole = Starlette(routes=[Mount(place, app)])

    async def ask():
        transport = httpx.ASGITransport(app=whole)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.request(*request, **options)

    return asyncio.run(ask())


def test_the_document_says_where_the_application_is_mounted_and_that_it_needs_a_token(
    server_hubs, tmp_path
):
    (tmp_path / "tokens").write_text("secret\n")
    app = create_app(server_hubs(), infer_token_file=tmp_path / "tokens")
    path, token = "/models-api/openapi.json", {"Authorization": "Bearer secret"}
    assert mounted("/models-api", app, "GET", path).status_code == 401
    document = mounted("/models-api", app, "GET", path, headers=token).json()
    assert mounted("/models-api", app, "POST", path, headers=token).status_code == 405
    assert document["servers"] == [{"url": "/models-api"}]
    assert document["security"] == [{"token": []}]
    hidden = create_app(server_hubs(), introspection=False)
    assert mounted("/", hidden, "GET", "/openapi.json").status_code == 404
    with pytest.raises(ValueError, match="introspection must be True or False, not 1"):
        create_app(server_hubs(), introspection=1)


# ---------------------------------------------------------------------- reflection

OLD = "grpc.reflection.v1alpha.ServerReflection"


def reflect(client, *asked, service=OLD):
    """Send requests of reflection, and return the answers."""
    kind = messages.message("grpc.reflection.v1.ServerReflectionRequest")
    method = client._channel.stream_stream(f"/{service}/ServerReflectionInfo")
    answers = method(iter([kind(**each).SerializeToString() for each in asked]), timeout=LONG)
    answer = messages.message("grpc.reflection.v1.ServerReflectionResponse")
    return [answer.FromString(each) for each in answers]


@pytest.mark.parametrize("service", [OLD, messages.REFLECTION])
def test_reflection_has_the_services_and_their_files(both, service):
    _, _, client = both()
    symbol = "inference.GRPCInferenceService.ModelInfer"
    listed, by_symbol, by_name = reflect(
        client,
        {"list_services": "*"},
        {"file_containing_symbol": symbol},
        {"file_by_filename": "inference.proto"},
        service=service,
    )
    names = [each.name for each in listed.list_services_response.service]
    assert names == [messages.INFERENCE, messages.HEALTH, messages.REFLECTION]
    for answer in (by_symbol, by_name):
        (data,) = answer.file_descriptor_response.file_descriptor_proto
        assert FileDescriptorProto.FromString(data).package == "inference"
    assert by_symbol.original_request.file_containing_symbol == symbol


def test_reflection_of_what_is_not_there_is_an_answer(both):
    _, _, client = both()
    wrong = (
        {"file_containing_symbol": "no.Such"},
        {"file_containing_symbol": "inference.GRPCInferenceService.NoSuch"},
        {"file_by_filename": "../etc/passwd"},
        {"file_containing_extension": {"containing_type": "a", "extension_number": 1}},
        {"all_extension_numbers_of_type": "inference.ModelConfig"},
        {},
    )
    answers = reflect(client, *wrong)
    assert [each.error_response.error_code for each in answers] == [5] * len(wrong)
    method = client._channel.stream_stream(f"/{OLD}/ServerReflectionInfo")
    with pytest.raises(grpc.RpcError) as caught:
        list(method(iter([b"\xff"]), timeout=LONG))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_reflection_can_be_hidden_and_needs_a_token(both, tmp_path):
    (tmp_path / "tokens").write_text("secret\n")
    access = Access(infer=TokenFile(tmp_path / "tokens"))
    for options, code in (
        ({"introspection": False}, grpc.StatusCode.UNIMPLEMENTED),
        ({"access": access}, grpc.StatusCode.UNAUTHENTICATED),
    ):
        _, _, client = both(**options)
        with pytest.raises(grpc.RpcError) as caught:
            reflect(client, {"list_services": "*"})
        assert caught.value.code() is code


def test_a_tool_that_stays_does_not_hold_up_the_end(grpc_servers, triton_clients):
    server = grpc_servers(MODELS)
    client = triton_clients(server)
    stays = threading.Event()

    def requests():
        kind = messages.message("grpc.reflection.v1.ServerReflectionRequest")
        yield kind(list_services="*").SerializeToString()
        stays.wait(LONG)

    method = client._channel.stream_stream(f"/{OLD}/ServerReflectionInfo")
    answers = method(requests(), timeout=LONG)
    next(answers)
    server.stop().result(LONG)
    with pytest.raises(grpc.RpcError) as caught:
        next(answers)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    stays.set()
