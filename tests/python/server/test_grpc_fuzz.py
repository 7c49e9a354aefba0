"""gRPC: no bytes make the server fail."""

import random

import numpy as np
import pytest

from service_streamer.hub import ModelSpec, TensorSpec

grpc = pytest.importorskip("grpc")
protocol = pytest.importorskip("tritonclient.grpc.service_pb2")

pytest_plugins = ["grpc_fixtures"]

MESSAGES = 3000  # to each method
AT_A_TIME = 50


def good():
    raw = protocol.ModelInferRequest(model_name="two", id="7")
    for name in "ab":
        raw.inputs.add(name=name, datatype="FP32", shape=[3, 2])
        raw.raw_input_contents.append(np.ones((3, 2), "<f4").tobytes())
    raw.outputs.add(name="sum")
    raw.parameters["priority"].int64_param = 1
    text = protocol.ModelInferRequest(model_name="text")
    text.inputs.add(name="t", datatype="BYTES", shape=[2])
    text.raw_input_contents.append(b"\1\0\0\0a\2\0\0\0bc")
    typed = protocol.ModelInferRequest(model_name="any")
    typed.inputs.add(name="x", datatype="INT8", shape=[2], contents={"int_contents": [1, -1]})
    return [raw, text, typed]


ODD = [
    b"",
    b"\0",
    b"\xff" * 9,
    b"\x80" * 11,
    b"FP16",
    b"BF16",
    b"BYTES",
    b"\x0a\xff\xff\xff\xff\x0f",
]


def mutated(rng, message):
    """A message with a few changes: of its bytes, or of its fields."""
    if rng.random() < 0.5:
        message = mutated_fields(rng, message)
    data = bytearray(message.SerializeToString())
    for _ in range(rng.choice([0, 1, 2, 5])):
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.choice([0, 1, 3])] = rng.choice([*ODD, rng.randbytes(2)])
    return bytes(data)


def mutated_fields(rng, message):
    copy = type(message)()
    copy.CopyFrom(message)
    given = rng.choice(copy.inputs)
    change = rng.randrange(7)
    if change == 0:
        del given.shape[:]
        given.shape.extend(
            rng.choice([-1, 0, 1, 2, 2**31, 2**62, 2**63 - 1]) for _ in range(rng.randrange(40))
        )
    elif change == 1:
        given.datatype = rng.choice(["BOOL", "UINT64", "FP16", "BF16", "BYTES", "", "int8"])
    elif change == 2:
        given.name = rng.choice(["", "a", "x" * 1000, "\0"])
    elif change == 3:
        given.contents.fp64_contents.extend([float("nan"), 1e308])
    elif change == 4:
        copy.raw_input_contents.append(rng.randbytes(rng.randrange(20)))
    elif change == 5:
        copy.model_name, copy.model_version = rng.choice(
            [
                ("", ""),
                ("two@1", ""),
                ("two", "-1"),
                ("two", "1" * 50),
                ("../two", "x"),
                ("any", "1"),
            ]
        )
    else:
        for name in ("priority", "timeout", "tenant", "caller_key"):
            kind = rng.choice(["int64_param", "uint64_param", "string_param", "double_param"])
            value = rng.choice([2**63 - 1, 0]) if "int" in kind else float("nan")
            setattr(copy.parameters[name], kind, "x" * 300 if "string" in kind else value)
    return copy


def total(batch):
    return [{"sum": row["a"] + row["b"]} for row in batch]


PAIRS = TensorSpec("FP32", (2,))
MODELS = {
    "two": ModelSpec(total, batch_size=64, inputs={"a": PAIRS, "b": PAIRS}),
    "text": ModelSpec(list, batch_size=64),
    "any": ModelSpec(list, batch_size=64),
}


def answers_singly(client, data):
    """The code and the details of each call."""
    method = client._channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    calls = [method.future(each) for each in data]
    return [(call.code(), call.details()) for call in calls]


def answers_in_a_stream(client, data):
    """A code for each request, from the texts of the errors, and the code of the call."""
    method = client._channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
    call = method(iter(data))
    texts = [protocol.ModelStreamInferResponse.FromString(each).error_message for each in call]
    assert len(texts) == len(data)
    return [
        *((grpc.StatusCode.NOT_FOUND if each else grpc.StatusCode.OK, each) for each in texts),
        (call.code(), call.details()),
    ]


@pytest.mark.parametrize("answers", [answers_singly, answers_in_a_stream])
def test_no_message_makes_the_server_fail(grpc_servers, triton_clients, caplog, answers):
    client = triton_clients(grpc_servers(MODELS))
    rng = random.Random(7)
    valid = good()
    found = []
    for _ in range(MESSAGES // AT_A_TIME):
        data = [mutated(rng, rng.choice(valid)) for _ in range(AT_A_TIME)]
        found += answers(client, data)
    allowed = {grpc.StatusCode[name] for name in ("OK", "INVALID_ARGUMENT", "NOT_FOUND")}
    assert [each for each in found if each[0] not in allowed] == []
    assert len({code for code, _ in found}) >= 2
    assert caplog.record_tuples == []  # it logs what is not the client's fault
    for each in valid:
        assert client._client_stub.ModelInfer(each).outputs
