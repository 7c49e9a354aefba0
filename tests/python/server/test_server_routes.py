"""The routes of the server, asked without a socket."""

import asyncio
import json

import pytest

pytest.importorskip("http_servers")

from http_servers import App
from server_models import fails
from thread_models import Gate, double

from service_streamer.hub import ModelSpec

HEADER = "Inference-Header-Content-Length"


def tensor(name, datatype, data):
    return {"name": name, "datatype": datatype, "shape": [len(data)], "data": data}


def infer(app, model, *inputs, headers=None, **more):
    return app.ask("POST", f"/v2/models/{model}/infer", {"inputs": inputs, **more}, headers)


def binary(app, model, head, *parts):
    head = json.dumps(head).encode()
    headers = {HEADER: str(len(head))}
    return app.ask("POST", f"/v2/models/{model}/infer", b"".join((head, *parts)), headers)


def outputs(answer):
    assert answer.status == 200, answer.json
    return {each["name"]: each["data"] for each in answer.json["outputs"]}


# -------------------------------------------------- the Open Inference Protocol


def test_an_infer_request_in_json(app):
    answer = infer(
        app, "sums", tensor("b", "INT64", [10, 20]), tensor("a", "INT64", [1, 2]), id="42"
    )
    assert answer.json == {
        "model_name": "sums",
        "model_version": "1",
        "id": "42",
        "outputs": [
            {"name": "sum", "datatype": "INT64", "shape": [2], "data": [11, 22]},
            {"name": "text", "datatype": "BYTES", "shape": [2], "data": ["1+10", "2+20"]},
        ],
    }


def test_a_version_is_in_the_path(app):
    request = {"inputs": [tensor("x", "BYTES", ["a"])]}
    assert app.ask("POST", "/v2/models/upper/versions/1/infer", request).status == 200
    for version in ("2", "01", "@1", "1%20", ""):
        answer = app.ask("POST", f"/v2/models/upper/versions/{version}/infer", request)
        assert (version, answer.status) == (version, 200 if version == "" else 404)


def test_binary_tensors_in_both_directions(app):
    inputs = [
        {"name": name, "datatype": "INT64", "shape": [1], "parameters": {"binary_data_size": 8}}
        for name in ("a", "b")
    ]
    head = {"inputs": inputs, "outputs": [{"name": "text", "parameters": {"binary_data": True}}]}
    answer = binary(app, "sums", head, (5).to_bytes(8, "little"), (6).to_bytes(8, "little"))
    length = int(answer.headers[HEADER.lower()])
    (told,) = json.loads(answer.body[:length])["outputs"]
    assert told["parameters"] == {"binary_data_size": 7}
    assert answer.body[length:] == b"\3\0\0\0005+6"


def test_only_the_wanted_outputs_are_sent(app):
    inputs = tensor("a", "INT64", [1]), tensor("b", "INT64", [2])
    assert outputs(infer(app, "sums", *inputs, outputs=[{"name": "sum"}])) == {"sum": [3]}
    answer = infer(app, "sums", *inputs, outputs=[{"name": "other"}])
    assert (answer.status, answer.json["error"]) == (
        400,
        "unknown output 'other'; the outputs are sum, text",
    )


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"inputs": None}, "inputs must be a list of tensors, not None"),
        ({"inputs": [1]}, "an input must be an object, not 1"),
        ({"inputs": []}, "the request has no inputs"),
        ({"inputs": [tensor("a", "INT64", [1])]}, "input 'b' is missing"),
        ({"inputs": [tensor("c", "INT64", [1])]}, "unknown input 'c'; the inputs are a, b"),
        ({"inputs": [tensor("a", "INT64", [1])] * 2}, "two inputs have one name: ['a', 'a']"),
        ({"id": 5}, "id must be a string, not 5"),
        ({"parameters": []}, "parameters of the request must be an object, not []"),
        ({"parameters": {"timeout": -1}}, "timeout must be an int of at least 0, not -1"),
        ({"outputs": ["sum"]}, "an output must be an object with a name, not 'sum'"),
    ],
)
def test_a_wrong_request_is_refused_with_its_reason(app, change, complaint):
    request = {"inputs": [tensor("a", "INT64", [1]), tensor("b", "INT64", [1])], **change}
    answer = app.ask("POST", "/v2/models/sums/infer", request)
    assert (answer.status, answer.json["error"]) == (400, complaint)


@pytest.mark.parametrize(
    ("size", "data", "complaint"),
    [
        (16, b"12345678", "input 'a': binary_data_size is 16, but only 8 bytes are left"),
        (4, b"1234", "input 'a': INT64 of shape [1] has 8 bytes, not 4"),
        (8, b"123456789", "the body has 1 bytes more than its inputs"),
        (-1, b"", "binary_data_size must be an int of at least 0, not -1"),
    ],
)
def test_binary_data_that_does_not_fit_is_refused_with_its_reason(app, size, data, complaint):
    head = {"name": "a", "datatype": "INT64", "shape": [1]}
    answer = binary(app, "double", {"inputs": [head | {"parameters": {"binary_data_size": size}}]},
                    data)  # fmt: skip
    assert (answer.status, answer.json["error"]) == (400, complaint)


@pytest.mark.parametrize("length", ["1000", "-1", "x", "9" * 5000, "²"])
def test_a_wrong_length_of_the_json_is_refused(app, length):
    answer = app.ask("POST", "/v2/models/double/infer", b"{}", {HEADER: length})
    assert answer.status == 400
    assert "inference-header-content-length" in answer.json["error"]


def test_metadata_has_the_declared_tensors(app):
    answer = app.ask("GET", "/v2/models/means")
    assert answer.json == {
        "name": "means",
        "versions": ["1"],
        "platform": "service-streamer",
        "inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 2, -1]}],
        "outputs": [{"name": "mean", "datatype": "FP32", "shape": [-1]}],
    }
    assert app.ask("GET", "/v2/models/sizes").json["inputs"][0]["datatype"] == "BYTES"
    assert app.ask("GET", "/v2").json["extensions"] == [
        "binary_tensor_data",
        "model_repository",
        "model_repository(unload_dependents)",
        "schedule_policy",
        "parameters",
        "generate",
        "model_configuration",
        "statistics",
    ]


def test_the_repository_loads_and_unloads(app):
    def state():
        index = app.ask("POST", "/v2/repository/index").json
        return next(each["state"] for each in index if each["name"] == "upper")

    assert (state(), app.ask("GET", "/v2/models/upper/ready").status) == ("UNAVAILABLE", 503)
    assert app.ask("POST", "/v2/repository/models/upper/load").status == 200
    assert (state(), app.ask("GET", "/v2/models/upper/ready").status) == ("READY", 200)
    ready = app.ask("POST", "/v2/repository/index", {"ready": True}).json
    assert [each["name"] for each in ready] == ["upper"]
    assert app.ask("POST", "/v2/repository/models/upper/unload").status == 200
    assert state() == "UNAVAILABLE"
    config = {"parameters": {"config": "{}"}}
    assert app.ask("POST", "/v2/repository/models/upper/load", config).status == 400


def test_clients_that_give_up_a_load_delay_no_others(server_hubs):
    gate = Gate()
    slow = ModelSpec(gate, batch_size=1, warmup=[1])
    app = App(server_hubs({"slow": slow, "double": ModelSpec(double, batch_size=1)}))
    path = "/v2/repository/models/{}/load".format

    async def main():
        assert (await app.answer("POST", path("double"))).status == 200
        loads = [asyncio.ensure_future(app.answer("POST", path("slow"))) for _ in range(64)]
        await asyncio.to_thread(gate.wait_entered)
        for each in loads:
            each.cancel()
        await asyncio.wait(loads)
        unload = path("double").replace("load", "unload")  # loads in one process take turns
        assert (await app.answer("POST", unload)).status == 200
        late = await app.answer("POST", path("slow"), headers={"X-Request-Timeout": "0"})
        assert late.status == 504
        loaded = asyncio.ensure_future(app.answer("POST", path("slow")))
        gate.open()
        assert (await loaded).status == 200

    asyncio.run(main())


def test_a_load_that_fails_fails_for_all_that_wait_for_it(server_hubs):
    gate = Gate(fails)
    app = App(server_hubs({"fails": ModelSpec(gate, batch_size=1, warmup=[1])}))

    async def main():
        path = "/v2/repository/models/fails/load"
        loads = [asyncio.ensure_future(app.answer("POST", path)) for _ in range(3)]
        await asyncio.to_thread(gate.wait_entered)
        gate.open()
        return [await each for each in loads]

    for answer in asyncio.run(main()):
        assert answer.status == 503
        assert b"the model is broken" in answer.body


def test_bytes_reach_the_model_as_it_declares_them(app):
    assert outputs(infer(app, "upper", tensor("x", "BYTES", ["é"]))) == {"output": ["É"]}
    assert outputs(infer(app, "sizes", tensor("file", "BYTES", ["é"]))) == {"output": [2]}
    head = {"name": "x", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}}
    answer = binary(app, "upper", {"inputs": [head]}, b"\1\0\0\0\xff")
    assert (answer.status, "'x' is not UTF-8" in answer.json["error"]) == (400, True)


# ------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "//", 404),
        ("POST", "/", 405),
        ("GET", "/v2/nothing", 404),
        ("GET", "/v2/models/none", 404),
        ("GET", "/v2/models/upper/nothing", 404),
        ("GET", "/v2/models/..%2Fupper", 404),
        ("GET", "/v2/models/upper@1", 404),
        ("POST", "/v2/repository/models/none/load", 404),
        ("GET", "/v2/models/upper/infer", 405),
        ("POST", "/v2/health/live", 405),
        ("POST", "/v1/models/upper", 405),
        ("POST", "/v1/models/upper:classify", 404),
        ("GET", "/v1/models", 404),
    ],
)
def test_a_wrong_path_or_method_is_reported(app, method, path, status):
    answer = app.ask(method, path)
    assert answer.status == status
    assert answer.json["error"]
    assert ("allow" in answer.headers) == (status == 405)


def test_an_exception_of_the_model_is_sent_without_its_traceback(app):
    answer = app.ask("POST", "/v1/models/fails:predict", {"instances": [1]})
    assert (answer.status, answer.json) == (500, {"error": "RuntimeError: the model is broken"})


def test_an_output_that_the_protocol_does_not_have_is_reported(app):
    answer = app.ask("POST", "/v1/models/double:predict", {"instances": [{"a": 1}]})
    assert answer.status == 500
    assert "TypeError" in answer.json["error"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Request-Timeout", "soon"),
        ("X-Request-Timeout", "-1"),
        ("X-Request-Timeout", "nan"),
        ("X-Priority", "1.5"),
        ("X-Priority", "9" * 25),
        ("X-Tenant", "t" * 201),
    ],
)
def test_a_wrong_header_is_refused(app, name, value):
    answer = app.ask("POST", "/v1/models/double:predict", {"instances": [1]}, {name: value})
    assert (answer.status, bool(answer.json["error"])) == (400, True)
