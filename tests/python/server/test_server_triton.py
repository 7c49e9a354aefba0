"""The server as `tritonclient` sees it, in an interpreter of its own: it imports gevent."""

import pytest

pytest.importorskip("http_servers")
pytest.importorskip("tritonclient")
pytest.importorskip("geventhttpclient")

from scripts import run_python

pytestmark = pytest.mark.slow

PRELUDE = """
import sys
import numpy as np
from tritonclient.http import *
from tritonclient.utils import InferenceServerException

client = InferenceServerClient(sys.argv[1], concurrency=4)

def tensor(name, array, datatype, binary=True):
    found = InferInput(name, array.shape, datatype)
    found.set_data_from_numpy(array, binary_data=binary)
    return found

def error(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except InferenceServerException as error:
        return error.status(), error.message()
    raise AssertionError("no error")
"""


def run(server, script):
    run_python(PRELUDE + script, server.url)


def test_it_infers_in_both_forms(http_servers):
    run(
        http_servers(),
        """
for binary_in in (True, False):
    for binary_out in (True, False):
        a, b = np.array([1, 2]), np.array([10, 20])
        inputs = [tensor("a", a, "INT64", binary_in), tensor("b", b, "INT64", binary_in)]
        outputs = [InferRequestedOutput(n, binary_data=binary_out) for n in ("text", "sum")]
        result = client.infer("sums", inputs, outputs=outputs, request_id="42")
        assert result.as_numpy("sum").tolist() == [11, 22]
        text = [each if type(each) is str else each.decode() for each in result.as_numpy("text")]
        assert text == ["1+10", "2+20"], text
        assert result.get_response()["id"] == "42"
image = np.random.rand(3, 2, 5).astype(np.float32)
result = client.infer("means", [tensor("image", image, "FP32")])
assert np.allclose(result.as_numpy("mean"), image.mean(axis=(1, 2)))
assert result.as_numpy("mean").dtype == np.float32
words = np.array(["a", "\\u00e9"], object)
assert client.infer("upper", [tensor("x", words, "BYTES")]).as_numpy("output").tolist() == [
    b"A", "\\u00c9".encode()]
""",
    )
