"""gRPC: what is refused, and how calls end early."""

import asyncio
from concurrent.futures import CancelledError
from types import SimpleNamespace

import numpy as np
import pytest
from thread_models import Gate, double
from waits import LONG, eventually

from service_streamer.hub import ModelSpec, TensorSpec

grpc = pytest.importorskip("grpc")
triton = pytest.importorskip("tritonclient.grpc")
protocol = pytest.importorskip("tritonclient.grpc.service_pb2")

pytest_plugins = ["grpc_fixtures"]


def failing(batch):
    raise KeyError("no such word")


MODELS = {
    "x": ModelSpec(double, batch_size=8, inputs={"x": TensorSpec("FP32", (2,))}),
    "any": ModelSpec(double, batch_size=8),
    "fails": ModelSpec(failing, batch_size=8),
}


def request(model="x", name="x", datatype="FP32", shape=(1, 2), raw=None, **more):
    message = protocol.ModelInferRequest(model_name=model, **more)
    message.inputs.add(name=name, datatype=datatype, shape=shape)
    message.raw_input_contents.append(bytes(8) if raw is None else raw)
    return message


def typed(datatype, shape=(1,), **contents):
    message = protocol.ModelInferRequest(model_name="any")
    message.inputs.add(name="x", datatype=datatype, shape=shape, contents=contents)
    return message


def beside():
    message = request()
    message.inputs[0].contents.fp32_contents.extend([1, 2])
    return message


def two_raw():
    message = request()
    message.raw_input_contents.append(b"")
    return message


REFUSED = {
    "unknown model": (request("nope"), "NOT_FOUND", "nope"),
    "a path": (request("../x"), "NOT_FOUND", "../x"),
    "unknown version": (request(model_version="7"), "NOT_FOUND", "7"),
    "no inputs": (protocol.ModelInferRequest(model_name="x"), "INVALID_ARGUMENT", "inputs"),
    "unknown input": (request(name="y"), "INVALID_ARGUMENT", "'y'"),
    "other datatype": (request(datatype="INT32"), "INVALID_ARGUMENT", "'x' must be FP32"),
    "unknown datatype": (request(datatype="FP8"), "INVALID_ARGUMENT", "FP8"),
    "other shape": (request(shape=(2, 1)), "INVALID_ARGUMENT", "[-1, 2]"),
    "negative size": (request(shape=(-1, 2)), "INVALID_ARGUMENT", "[-1, 2]"),
    "short": (request(raw=bytes(7)), "INVALID_ARGUMENT", "not 7"),
    "two forms": (beside(), "INVALID_ARGUMENT", "contents beside"),
    "too many raw": (two_raw(), "INVALID_ARGUMENT", "not 2"),
    "other field": (typed("FP32", fp64_contents=[1]), "INVALID_ARGUMENT", "fp32_contents"),
    "out of range": (typed("INT8", int_contents=[128]), "INVALID_ARGUMENT", "INT8"),
    "only raw": (typed("FP16", fp32_contents=[1]), "INVALID_ARGUMENT", "raw_input_contents"),
    "a huge shape of nothing": (
        typed("BYTES", shape=[0, 2**62, 2**62]),
        "INVALID_ARGUMENT",
        "too large",
    ),
    "too few": (typed("BYTES"), "INVALID_ARGUMENT", "the shape [0]"),
    "the model's own": (request("fails"), "INTERNAL", "KeyError: 'no such word'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_has_a_code_and_names_what_was_wrong(grpc_servers, triton_clients, case):
    message, code, text = REFUSED[case]
    client = triton_clients(grpc_servers(MODELS))
    with pytest.raises(grpc.RpcError) as caught:
        client._client_stub.ModelInfer(message)
    assert caught.value.code() == grpc.StatusCode[code]
    assert text in caught.value.details()
    assert "Traceback" not in caught.value.details()


def test_the_repository_takes_no_files_and_has_no_name(grpc_servers, triton_clients):
    client = triton_clients(grpc_servers(MODELS))
    with pytest.raises(triton.InferenceServerException, match="'config' is not supported"):
        client.load_model("x", config="{}")
    with pytest.raises(grpc.RpcError, match="without a name: 'main' is unknown"):
        client._client_stub.RepositoryIndex(protocol.RepositoryIndexRequest(repository_name="main"))


def test_a_wrong_value_of_the_metadata_is_named(grpc_servers, triton_clients):
    client = triton_clients(grpc_servers(MODELS))
    for name, value in (
        ("x-request-timeout", "soon"),
        ("x-priority", "1.5"),
        ("x-tenant", "a" * 201),
    ):
        with pytest.raises(grpc.RpcError, match=name.removeprefix("x-")) as caught:
            client._client_stub.ModelInfer(request(), metadata=[(name, value)])
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_bytes_that_are_no_message_are_an_invalid_argument(grpc_servers, triton_clients):
    client = triton_clients(grpc_servers(MODELS))
    infer = client._channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    with pytest.raises(grpc.RpcError, match=r"are no inference\.ModelInferRequest") as caught:
        infer(b"\xff\xff\xff")
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_message_above_the_limit_is_refused(grpc_servers, triton_clients):
    client = triton_clients(grpc_servers(MODELS, max_message=10_000))
    with pytest.raises(grpc.RpcError) as caught:
        client._client_stub.ModelInfer(request("any", shape=(5000, 2), raw=bytes(40_000)))
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert client.is_server_live()


def test_the_error_of_a_model_may_be_long_and_odd(grpc_servers, triton_clients, caplog):
    caplog.set_level("CRITICAL")  # pytest cannot show it

    def model(batch):
        raise ValueError("long \ud800" + "\U0001f600" * 10_000)

    client = triton_clients(grpc_servers({"m": ModelSpec(model, batch_size=8)}))
    with pytest.raises(grpc.RpcError, match="ValueError: long") as caught:
        client._client_stub.ModelInfer(request("m"))
    assert caught.value.code() == grpc.StatusCode.INTERNAL


class Busy:
    """A model that has begun a batch, and has room for one more request."""

    def __init__(self, server, client):
        self._handle = server.hub["gate"]
        self.address = server.address
        self.infer = client._client_stub.ModelInfer

    def queued(self):
        return self._handle.stats().queued_requests

    def send(self, number):
        """Send a request, and wait until it is in the queue."""
        call = self.infer.future(numbered(number))  # the call is cancelled when it is forgotten
        eventually(lambda: self.queued() == 1)
        return call


def numbered(number):
    return request("gate", raw=np.array([number, 0], "<f4").tobytes())


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def busy(grpc_servers, triton_clients, gate):
    options = {"max_queue": 1, "overflow": "reject", "policy": "greedy"}
    spec = ModelSpec(gate, batch_size=1, worker_timeout=10 * LONG, **options)
    server = grpc_servers({"gate": spec})
    busy = Busy(server, triton_clients(server))
    busy.first = busy.infer.future(numbered(1))
    gate.wait_entered()
    return busy


def check_seen(busy, gate, last):
    """Let the model go on: it sees the first request and then the last, and nothing else."""
    eventually(lambda: busy.queued() == 0)
    after = busy.send(last)
    gate.open()
    assert busy.first.result(LONG).outputs
    assert after.result(LONG).outputs
    assert [int(row[0]) for batch in gate.batches for row in batch] == [1, last]


def test_a_call_that_is_cancelled_never_reaches_the_model(busy, gate):
    busy.send(2).cancel()
    check_seen(busy, gate, 3)


def test_a_call_ends_at_its_deadline_and_never_reaches_the_model(busy, gate):
    with pytest.raises(grpc.RpcError) as caught:
        busy.infer(numbered(2), timeout=0.2)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    check_seen(busy, gate, 3)


def test_a_client_that_goes_away_cancels_its_calls(busy, gate):
    with grpc.insecure_channel(busy.address) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        call = infer.future(numbered(2).SerializeToString())
        eventually(lambda: busy.queued() == 1)
    assert call.code() == grpc.StatusCode.CANCELLED
    check_seen(busy, gate, 3)


class Gone:
    """The context of a call whose client has just gone, which gRPC does not know yet."""

    def invocation_metadata(self):
        return ()

    def peer(self):
        return "unix:"

    def time_remaining(self):
        return None

    async def abort(self, *status):
        raise grpc.aio.InternalError("execute_batch")

    write = abort


@pytest.mark.parametrize(
    ("name", "model"),
    [("ModelInfer", "nope"), ("ModelStreamInfer", "nope"), ("ModelStreamInfer", "any")],
)
def test_a_call_whose_client_has_just_gone_is_cancelled_without_a_word(
    grpc_servers, caplog, name, model
):
    from service_streamer.server._access import Access
    from service_streamer.server._counts import Counts
    from service_streamer.server._grpc.calls import Calls
    from service_streamer.server._grpc.inference import Inference

    server = grpc_servers(MODELS)
    methods, kind = Inference(server.service).methods, "inference.GRPCInferenceService"
    calls = Calls(Counts(), Access("open"), lambda: "", asyncio.sleep)
    found = calls.handlers(kind, methods)
    method = found.service(SimpleNamespace(method=f"/{kind}/{name}", invocation_metadata=()))
    data = request(model).SerializeToString()

    async def stream():
        yield data

    call = method.unary_unary or method.stream_stream
    with pytest.raises(CancelledError):
        server.run(call(data if name == "ModelInfer" else stream(), Gone()))
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


def test_a_full_queue_says_when_to_try_again(busy):
    waiting = busy.send(2)
    with pytest.raises(grpc.RpcError) as caught:
        busy.infer(numbered(3))
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert int(dict(caught.value.trailing_metadata())["grpc-retry-pushback-ms"]) >= 1000
    waiting.cancel()
