"""Requests that the codecs of MLServer make, and what they read of the answers."""

import pytest

pytest.importorskip("mlserver")

import numpy
from http_servers import App
from mlserver import codecs, types

from service_streamer.hub import ModelSpec

MODELS = {
    "echo": ModelSpec(lambda batch: batch, batch_size=8),
    "upper": ModelSpec(lambda batch: [row[0].upper() for row in batch], batch_size=8),  # [n, 1]
}


@pytest.fixture
def infer(server_hubs):
    app = App(server_hubs(MODELS))

    def infer(model, request):
        body = request.model_dump_json(exclude_none=True).encode()
        answer = app.ask("POST", f"/v2/models/{model}/infer", body)
        if answer.status != 200:
            return answer.json["error"]
        return types.InferenceResponse.model_validate_json(answer.body)

    return infer


@pytest.mark.parametrize("n", [1, 2, 65])
@pytest.mark.parametrize("kind", ["float64", "float32", "int64", "uint8", "bool"])
def test_arrays(infer, kind, n):
    given = (numpy.arange(n * 2).reshape(n, 2) % 2).astype(kind)
    answer = infer("echo", codecs.NumpyRequestCodec.encode_request(given))
    got = codecs.NumpyCodec.decode_output(answer.outputs[0])
    assert (got.dtype, got.tolist()) == (given.dtype, given.tolist())


@pytest.mark.parametrize("texts", [["a"], ["é", ""], ["x" * 1000] * 65])
def test_texts(infer, texts):
    answer = infer("upper", codecs.StringRequestCodec.encode_request(texts))
    assert codecs.StringCodec.decode_output(answer.outputs[0]) == [each.upper() for each in texts]


def test_a_codec_that_is_not_done_is_named(infer):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "b": [3, 4]})
    assert "content_type 'pd'" in infer("echo", codecs.PandasCodec.encode_request(frame))
    inputs = [codecs.Base64Codec.encode_input("x", [b"\0\1"])]
    assert "content_type 'base64'" in infer("echo", types.InferenceRequest(inputs=inputs))
