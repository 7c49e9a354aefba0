"""gRPC: no bytes make the server fail."""

import os
import random

import numpy as np
import pytest

from service_streamer.hub import ModelSpec, TensorSpec

grpc = pytest.importorskip("grpc")
protocol = pytest.importorskip("tritonclient.grpc.service_pb2")

pytest_plugins = ["grpc_fixtures"]

MESSAGES = int(os.environ.get("SERVICE_STREAMER_FUZZ_MESSAGES", 1500))  # in each test
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
    for datatype, field, values in TYPED:
        typed.inputs.add(name=field, datatype=datatype, shape=[2], contents={field: values})
    stream = protocol.ModelInferRequest(model_name="count")
    stream.inputs.add(name="x", datatype="INT8", shape=[1], contents={"int_contents": [3]})
    stream.parameters["triton_enable_empty_final_response"].bool_param = True
    return [raw, text, typed, stream]


TYPED = [
    ("BOOL", "bool_contents", [True, False]),
    ("INT8", "int_contents", [1, -1]),
    ("INT64", "int64_contents", [1, -1]),
    ("UINT16", "uint_contents", [1, 2]),
    ("UINT64", "uint64_contents", [1, 2]),
    ("FP32", "fp32_contents", [0.5, 1]),
    ("FP64", "fp64_contents", [0.5, 1]),
    ("BYTES", "bytes_contents", [b"a", b""]),
]
DATATYPES = [datatype for datatype, _, _ in TYPED]
PARAMETERS = [
    *("timeout", "priority", "binary_data_output", "binary_data", "binary_data_size", "headers"),
    *("triton_enable_empty_final_response", "content_type", "classification", "", "tenant"),
    *("sequence_id", "sequence_start", "sequence_end"),
    *("shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"),
]
VALUES = {
    "bool_param": [True, False],
    "int64_param": [-1, 0, 1, 2**63 - 1],
    "uint64_param": [0, 1, 2**64 - 1],
    "double_param": [0.0, float("nan"), float("inf")],
    "string_param": ["", "1", "np", "pd", "x" * 300],
}


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
    return mutated_bytes(rng, message.SerializeToString())


def mutated_bytes(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice([0, 1, 2, 5])):
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.choice([0, 1, 3])] = rng.choice([*ODD, rng.randbytes(2)])
    return bytes(data)


def mutated_fields(rng, message):
    copy = type(message)()
    copy.CopyFrom(message)
    given = rng.choice(copy.inputs)
    change = rng.randrange(8)
    if change == 0:
        del given.shape[:]
        given.shape.extend(
            rng.choice([-1, 0, 1, 2, 2**31, 2**62, 2**63 - 1]) for _ in range(rng.randrange(40))
        )
    elif change == 1:
        given.datatype = rng.choice([*DATATYPES, "FP16", "BF16", "", "int8"])
    elif change == 2:
        given.name = rng.choice(["", "a", "x" * 1000, "\0"])
    elif change == 3:
        _, field, values = rng.choice(TYPED)
        getattr(given.contents, field).extend(values * rng.randrange(1, 3))
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
    elif change == 6:
        copy.outputs.add(name=rng.choice(["output", "sum", "", "no such output"]))
    else:
        owner = rng.choice([copy, given, *copy.outputs])
        for name in rng.choices(PARAMETERS, k=rng.randrange(1, 4)):
            kind = rng.choice(list(VALUES))
            setattr(owner.parameters[name], kind, rng.choice(VALUES[kind]))
    return copy


def count(batch):
    (limit,) = batch
    yield from ([number] for number in range(1 + max(0, min(5, limit))))


def total(batch):
    return [{"sum": row["a"] + row["b"]} for row in batch]


PAIRS = TensorSpec("FP32", (2,))
MODELS = {
    "two": ModelSpec(total, batch_size=64, inputs={"a": PAIRS, "b": PAIRS}),
    "text": ModelSpec(list, batch_size=64),
    "any": ModelSpec(list, batch_size=64),
    "count": ModelSpec(count, batch_size=1, inputs={"x": TensorSpec("INT8")}),
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
    assert len(texts) >= len(data)
    return [
        *((grpc.StatusCode.NOT_FOUND if each else grpc.StatusCode.OK, each) for each in texts),
        (call.code(), call.details()),
    ]


ALLOWED = {
    grpc.StatusCode[name] for name in ("OK", "INVALID_ARGUMENT", "NOT_FOUND", "DEADLINE_EXCEEDED")
}


@pytest.mark.parametrize("answers", [answers_singly, answers_in_a_stream])
def test_no_message_makes_the_server_fail(grpc_servers, triton_clients, caplog, answers):
    client = triton_clients(grpc_servers(MODELS))
    rng = random.Random(7)
    valid = good()
    found = []
    for _ in range(MESSAGES // AT_A_TIME):
        data = [mutated(rng, rng.choice(valid)) for _ in range(AT_A_TIME)]
        found += answers(client, data)
    assert [each for each in found if each[0] not in ALLOWED] == []
    assert len({code for code, _ in found}) >= 2
    assert caplog.record_tuples == []  # it logs what is not the client's fault
    for each in valid:
        assert client._client_stub.ModelInfer(each).outputs


OTHERS = {
    "ServerMetadata": protocol.ServerMetadataRequest(),
    "ModelReady": protocol.ModelReadyRequest(name="two", version="1"),
    "ModelMetadata": protocol.ModelMetadataRequest(name="two", version="1"),
    "RepositoryIndex": protocol.RepositoryIndexRequest(ready=True),
    "RepositoryModelLoad": protocol.RepositoryModelLoadRequest(
        model_name="two", parameters={"config": {"string_param": "{}"}}
    ),
    "RepositoryModelUnload": protocol.RepositoryModelUnloadRequest(
        model_name="two", parameters={"unload_dependents": {"bool_param": True}}
    ),
}


def test_no_message_makes_another_method_fail(grpc_servers, triton_clients, caplog):
    client = triton_clients(grpc_servers(MODELS))
    rng = random.Random(7)
    codes = set()
    for _ in range(MESSAGES // AT_A_TIME):
        calls = []
        for _ in range(AT_A_TIME):
            name, message = rng.choice(list(OTHERS.items()))
            method = client._channel.unary_unary(f"/inference.GRPCInferenceService/{name}")
            calls.append(method.future(mutated_bytes(rng, message.SerializeToString())))
        codes.update(call.code() for call in calls)
    assert {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT} <= codes <= ALLOWED
    assert caplog.record_tuples == []
