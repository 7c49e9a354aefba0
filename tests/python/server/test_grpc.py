"""gRPC, asked by the client of Triton: the Open Inference Protocol and the model repository."""

import itertools

import pytest

pytest.importorskip("server_protocols")

import grpc
import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.service_pb2 as protocol
from server_protocols import raw_values
from thread_models import Gate, double
from waits import LONG, eventually

from service_streamer.hub import ModelSpec, TensorSpec

pytest_plugins = ["grpc_fixtures"]

PAIRS = TensorSpec("FP32", (2,))


def echo(batch):
    return batch


def tensor(array, datatype="FP32", name="x"):
    given = triton.InferInput(name, list(array.shape), datatype)
    given.set_data_from_numpy(array)
    return given


def stub(client):
    """The generated client, for messages that Triton's own does not send."""
    return client._client_stub


NUMBERS = {
    "BOOL": "?", "INT8": "i1", "INT16": "i2", "INT32": "i4", "INT64": "i8", "UINT8": "u1",
    "UINT16": "u2", "UINT32": "u4", "UINT64": "u8", "FP16": "f2", "FP32": "f4", "FP64": "f8",
}  # fmt: skip


@pytest.mark.parametrize("datatype", NUMBERS)
def test_a_tensor_of_each_datatype_comes_back(grpc_servers, triton_clients, datatype):
    client = triton_clients(grpc_servers({"echo": ModelSpec(echo, batch_size=8)}))
    array = np.arange(12).reshape(3, 2, 2).astype(NUMBERS[datatype])
    result = client.infer("echo", [tensor(array, datatype)], request_id="seven")
    np.testing.assert_array_equal(result.as_numpy("output"), array)
    assert result.as_numpy("output").dtype == array.dtype
    response = result.get_response()
    assert (response.model_name, response.model_version, response.id) == ("echo", "1", "seven")


def test_texts_and_bytes_come_back(grpc_servers, triton_clients):
    spec = ModelSpec(echo, batch_size=8, inputs={"x": TensorSpec("BYTES")})
    client = triton_clients(grpc_servers({"bytes": spec, "text": ModelSpec(echo, batch_size=8)}))
    for model, elements in (
        ("bytes", [b"\xff\0", b"", b"a" * 300]),
        ("text", [b"a", "ü".encode()]),
    ):
        result = client.infer(model, [tensor(np.array(elements, object), "BYTES")])
        assert result.as_numpy("output").tolist() == elements


TYPED = {
    "bool_contents": ("BOOL", [True, False]),
    "int_contents": ("INT8", [-128, 127]),
    "int64_contents": ("INT64", [-(2**63), 2**63 - 1]),
    "uint_contents": ("UINT16", [0, 65_535]),
    "uint64_contents": ("UINT64", [0, 2**64 - 1]),
    "fp32_contents": ("FP32", [0.5, -2.0]),
    "fp64_contents": ("FP64", [0.1, 1e300]),
    "bytes_contents": ("BYTES", [b"a", b""]),
}


def typed(model="echo", field="fp32_contents", shape=(2,), datatype=None, values=None):
    known, usual = TYPED[field]
    request = protocol.ModelInferRequest(model_name=model)
    given = request.inputs.add(name="x", datatype=datatype or known, shape=shape)
    getattr(given.contents, field).extend(usual if values is None else values)
    return request


@pytest.mark.parametrize("field", TYPED)
def test_typed_contents_are_answered_with_raw_contents(grpc_servers, triton_clients, field):
    client = triton_clients(grpc_servers({"echo": ModelSpec(echo, batch_size=8)}))
    response = stub(client).ModelInfer(typed(field=field))
    (output,), (raw,) = response.outputs, response.raw_output_contents
    datatype, values = TYPED[field]
    assert (output.datatype, list(output.shape)) == (datatype, [2])
    assert raw_values(datatype, raw) == values
    assert not output.HasField("contents")


def test_several_inputs_and_the_outputs_that_were_asked_for(grpc_servers, triton_clients):
    def model(batch):
        return [{"sum": row["a"] + row["b"], "twice": 2 * row["a"]} for row in batch]

    spec = ModelSpec(model, batch_size=8, inputs={"a": PAIRS, "b": PAIRS})
    client = triton_clients(grpc_servers({"two": spec}))
    a, b = np.ones((3, 2), "f4"), np.full((3, 2), 5, "f4")
    inputs = [tensor(b, name="b"), tensor(a, name="a")]
    both = client.infer("two", inputs)
    np.testing.assert_array_equal(both.as_numpy("sum"), a + b)
    one = client.infer("two", inputs, outputs=[triton.InferRequestedOutput("twice")])
    assert [each.name for each in one.get_response().outputs] == ["twice"]


def test_metadata_and_parameters_say_how_a_request_runs(grpc_servers, triton_clients):
    gate = Gate()
    server = grpc_servers({"gate": ModelSpec(gate, batch_size=1, policy="greedy")})
    infer = stub(triton_clients(server)).ModelInfer
    calls = [infer.future(typed("gate", shape=(1,), values=[1]))]
    gate.wait_entered()

    def send(value, metadata=(), **parameters):
        request = typed("gate", shape=(1,), values=[value])
        for name, number in parameters.items():
            request.parameters[name].int64_param = number
        calls.append(infer.future(request, metadata=metadata))

    send(2)
    send(3, [("x-priority", "1")])
    send(4, priority=2)
    send(5, [("x-priority", "3")], priority=1)
    eventually(lambda: server.hub["gate"].stats().queued_requests == 4)
    with pytest.raises(grpc.RpcError, match="within its deadline"):
        infer(typed("gate", shape=(1,), values=[6]), metadata=[("x-request-timeout", "0.05")])
    gate.open()
    assert all(call.result(LONG).outputs for call in calls)
    assert [batch[0] for batch in gate.batches] == [1, 5, 3, 2, 4]  # 2 is below the default


def test_metadata_has_the_declared_tensors(grpc_servers, triton_clients):
    spec = ModelSpec(
        double,
        batch_size=8,
        inputs={"x": TensorSpec("FP32", (3, -1))},
        outputs={"y": TensorSpec("STRING")},
    )
    client = triton_clients(grpc_servers({"m": spec}))
    server = client.get_server_metadata()
    assert server.name == "service-streamer"
    assert "model_repository" in server.extensions
    assert not {"binary_tensor_data", "generate"} & {*server.extensions}  # they are of HTTP
    found = client.get_model_metadata("m")
    assert (found.name, list(found.versions)) == ("m", ["1"])
    (x,), (y,) = found.inputs, found.outputs
    assert (x.name, x.datatype, list(x.shape)) == ("x", "FP32", [-1, 3, -1])
    assert (y.name, y.datatype, list(y.shape)) == ("y", "BYTES", [-1])


def test_an_unknown_model_or_version_is_not_ready(grpc_servers, triton_clients):
    client = triton_clients(grpc_servers({"m": ModelSpec(double, batch_size=8)}))
    client.load_model("m")
    asked = itertools.product(["m", "no_such", "../m", ""], ["", "1", "7", "stable", "-1"])
    ready = [each for each in asked if client.is_model_ready(*each)]
    assert ready == [("m", ""), ("m", "1")]


def test_the_repository_loads_and_unloads_models(grpc_servers, triton_clients):
    client = triton_clients(grpc_servers({"m": ModelSpec(double, batch_size=8)}))

    def index():
        (entry,) = client.get_model_repository_index().models
        return entry.name, entry.version, entry.state, client.is_model_ready("m")

    assert index() == ("m", "1", "UNAVAILABLE", False)
    client.load_model("m")
    assert index() == ("m", "1", "READY", True)
    client.unload_model("m")
    assert index() == ("m", "1", "UNAVAILABLE", False)
    ready = protocol.RepositoryIndexRequest(ready=True)
    assert len(stub(client).RepositoryIndex(ready).models) == 0


@pytest.mark.parametrize(
    ("name", "healthy"), [("", True), ("inference.GRPCInferenceService", True), ("live", True)]
)
def test_a_probe_learns_whether_the_server_is_ready(grpc_servers, triton_clients, name, healthy):
    server = grpc_servers({"m": ModelSpec(double, batch_size=8)})
    client = triton_clients(server)
    check = client._channel.unary_unary("/grpc.health.v1.Health/Check")
    asked = b"\x0a" + bytes([len(name)]) + name.encode()
    assert (check(asked), client.is_server_ready()) == (b"\x08\x01", True)  # SERVING
    server.service.stop()
    still = b"\x08\x01" if name == "live" else b"\x08\x02"
    assert (check(asked), client.is_server_ready()) == (still, False)
    assert client.is_server_live()


def test_a_probe_of_an_unknown_service_is_refused(grpc_servers, triton_clients, caplog):
    client = triton_clients(grpc_servers({}))
    with pytest.raises(grpc.RpcError, match="unknown service 'x'") as caught:
        client._channel.unary_unary("/grpc.health.v1.Health/Check")(b"\x0a\x01x")
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert caplog.record_tuples == []
