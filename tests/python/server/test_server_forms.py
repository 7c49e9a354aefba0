"""Forms: what clients of several kinds write, and what outputs become in JSON."""

import asyncio
import collections
import dataclasses
import json
import math
import re
from decimal import Decimal

import pytest

pytest.importorskip("server_protocols")

import numpy as np
import tritonclient.grpc.service_pb2 as protocol
from http_servers import App
from server_models import upper
from server_protocols import InBinary, InEvents, InGrpc, InJson, InTfServing, raw_values
from thread_models import double

from service_streamer.hub import ModelSpec, TensorSpec
from service_streamer.server._grpc.conversion import infer_request, infer_response
from service_streamer.server._http.json_values import dump
from service_streamer.server._http.large_json import INLINE
from service_streamer.server._outputs import values_of
from service_streamer.server._requests import DEFAULTS

pytest_plugins = ["grpc_fixtures"]

BOM = b"\xef\xbb\xbf"


def tensor(datatype, shape, values, content_type=None):
    told = {"name": "x", "datatype": datatype, "shape": shape, "data": values}
    return told if content_type is None else {**told, "parameters": {"content_type": content_type}}


def text_of(value):
    return value.decode(errors="replace") if type(value) is bytes else value


def in_json(app, model, told, **more):
    answer = app.ask("POST", f"/v2/models/{model}/infer", {"inputs": [told], **more})
    assert answer.status == 200, answer.json
    (output,) = answer.json["outputs"]
    return output["shape"], output.get("data")


def in_binary(app, model, told):
    told = dict(told)
    values = told.pop("data")
    if told["datatype"] == "BYTES":
        encoded = [each.encode() for each in values]
        data = b"".join(len(each).to_bytes(4, "little") + each for each in encoded)
    else:
        data = np.array(values, "<f4").tobytes()
    told["parameters"] = {**told.get("parameters", {}), "binary_data_size": len(data)}
    head = {"inputs": [told], "parameters": {"binary_data_output": True}}
    head = json.dumps(head).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    answer = app.ask("POST", f"/v2/models/{model}/infer", head + data, headers)
    assert answer.status == 200, answer.json
    length = int(answer.headers["inference-header-content-length"])
    (output,) = json.loads(answer.body[:length])["outputs"]
    values = raw_values(output["datatype"], answer.body[length:])
    return output["shape"], [text_of(each) for each in values]


def in_grpc(app, model, told):
    message = protocol.ModelInferRequest(model_name=model)
    given = message.inputs.add(name="x", datatype=told["datatype"], shape=told["shape"])
    for name, value in told.get("parameters", {}).items():
        given.parameters[name].string_param = value
    if told["datatype"] == "BYTES":
        given.contents.bytes_contents.extend(each.encode() for each in told["data"])
    else:
        given.contents.fp32_contents.extend(told["data"])
    found = asyncio.run(app.service.infer(infer_request(message), DEFAULTS))
    answer = infer_response(found)
    (output,) = answer.outputs
    values = raw_values(output.datatype, answer.raw_output_contents[0])
    return list(output.shape), [text_of(each) for each in values]


def in_tf_serving(app, model, told):
    instances = np.array(told["data"], object).reshape(told["shape"]).tolist()
    answer = app.ask("POST", f"/v1/models/{model}:predict", {"instances": instances})
    assert answer.status == 200, answer.json
    found = np.array(answer.json["predictions"], object)
    return list(found.shape), found.reshape(-1).tolist()


FORMS = [in_json, in_binary, in_grpc, in_tf_serving]


def pairs(batch):
    return [{"y": each} for each in upper(batch)]


def in_an_array(batch):
    return np.array(double(batch))


SHAPED = {
    "text": ModelSpec(upper, batch_size=64, inputs={"x": TensorSpec("STRING")}),
    "named": ModelSpec(pairs, batch_size=64, inputs={"x": TensorSpec("STRING")},
                       outputs={"y": TensorSpec("STRING")}),
    "text_of_one": ModelSpec(lambda batch: [upper(row.tolist()) for row in batch], batch_size=64,
                             inputs={"x": TensorSpec("STRING", (1,))}),
    "undeclared": ModelSpec(upper, batch_size=64),
    "scalar": ModelSpec(double, batch_size=64, inputs={"x": TensorSpec("FP32")}),
    "array": ModelSpec(in_an_array, batch_size=64, inputs={"x": TensorSpec("FP32")},
                       output="batch"),
    "of_one": ModelSpec(double, batch_size=64, inputs={"x": TensorSpec("FP32", (1,))}),
    "vector": ModelSpec(lambda batch: [np.float32([1, 2]) for _ in batch], batch_size=64,
                        inputs={"x": TensorSpec("FP32")}),
}  # fmt: skip


@pytest.mark.parametrize("ask", FORMS)
@pytest.mark.parametrize("row", [(), (1,)])
def test_one_value_for_each_item_may_have_either_rank_and_outputs_get_it(server_hubs, ask, row):
    app = App(server_hubs(SHAPED))
    for count in (1, 2, 65):
        shape, texts = [count, *row], ["é", *["b"] * (count - 1)]
        kind = "str" if row else None
        for model in ("text", "text_of_one", "undeclared", "named"):
            if ask is in_tf_serving and model in ("undeclared", "named"):
                continue  # it has no content types, and outputs with names are objects there
            told = tensor("BYTES", shape, texts, kind)
            assert ask(app, model, told) == (shape, upper(texts)), (model, count)
        for model in ("scalar", "array", "of_one"):
            told = tensor("FP32", shape, [1.5] * count)
            assert ask(app, model, told) == (shape, [3.0] * count), (model, count)
        found, _ = ask(app, "vector", tensor("FP32", shape, [1.5] * count))
        assert found == [count, 2]


@pytest.mark.parametrize(
    ("rank", "outputs", "expected"),
    [
        (1, [[1], [2]], [1, 2]),
        (1, [[1], [2, 3]], [[1], [2, 3]]),  # one rule for all rows
        (1, [np.array([1]), np.array([2, 3])], [[1], [2, 3]]),
        (1, [{"a": [1], "b": [1]}, {"a": [2], "b": []}], [{"a": 1, "b": [1]}, {"a": 2, "b": []}]),
        (2, [1, None, "a"], [[1], [None], ["a"]]),
        (2, [1, [2, 3]], [1, [2, 3]]),
        (2, [{"a": {"b": 1}}, {"a": {"b": 2}, "c": [3]}], [{"a": {"b": [1]}},
                                                             {"a": {"b": [2]}, "c": [3]}]),
        (2, np.array([1, 2]), [[1], [2]]),
        (1, {"a": np.array([[1], [2]]), "b": np.array([[1, 2]])}, {"a": [1, 2], "b": [[1, 2]]}),
        (1, [], []),
    ],
)  # fmt: skip
def test_all_rows_of_an_output_get_the_rank_of_the_input_or_none(rank, outputs, expected):
    assert json.loads(dump(values_of(outputs, rank))) == expected


def test_outputs_with_names_get_the_rank_of_the_input_among_values_of_json(server_hubs):
    app = App(server_hubs(SHAPED))
    answer = app.ask("POST", "/v1/models/named:predict", {"instances": [["a"], ["b"]]})
    assert answer.json == {"predictions": [{"y": ["A"]}, {"y": ["B"]}]}
    answer = app.ask("POST", "/v1/models/named:predict", {"inputs": [["a"]]})
    assert answer.json == {"outputs": {"y": [["A"]]}}


@pytest.mark.parametrize(
    ("model", "shape"), [("scalar", [2, 2]), ("scalar", [1, 1, 1]), ("of_one", [1, 2]),
                         ("of_one", []), ("scalar", [])]
)  # fmt: skip
def test_other_shapes_are_refused(server_hubs, model, shape):
    told = tensor("FP32", shape, [1.0] * math.prod(shape))
    answer = App(server_hubs(SHAPED)).ask("POST", f"/v2/models/{model}/infer", {"inputs": [told]})
    assert (answer.status, "must have the shape" in answer.json["error"]) == (400, True)


@pytest.mark.parametrize("large", [False, True])
def test_null_is_nan_in_both_directions(server_hubs, large):
    datatypes = ("FP32",) if large else ("FP16", "FP32", "FP64")
    specs = {each: {"x": TensorSpec(each, (-1,))} for each in datatypes}
    app = App(server_hubs(
        {each: ModelSpec(list, batch_size=8, inputs=spec) for each, spec in specs.items()}
    ))  # fmt: skip
    for datatype in datatypes:
        for count in (50_000,) if large else (1, 2, 65):
            values = [None, *[1.5] * (count - 1)]
            told = {"inputs": [tensor(datatype, [1, count], values)]}
            for path, body, output in (
                (f"/v2/models/{datatype}/infer", told, ("outputs", 0, "data")),
                (f"/v1/models/{datatype}:predict", {"instances": [values]}, ("predictions", 0)),
            ):
                text = json.dumps(body).replace("1.5,", f"1.5{'0' * 20 * large},").encode()
                assert (len(text) > INLINE) == large
                found = app.ask("POST", path, text).json
                for each in output:
                    found = found[each]
                assert found == values


@dataclasses.dataclass
class Point:
    x: float


class Tensors:
    """An array of a library that is not numpy."""

    def __init__(self, *values):
        self._values = list(values)

    def tolist(self):
        return self._values


Pair = collections.namedtuple("Pair", "a b")
INF = math.inf
INFINITE = [
    INF, -INF, np.float32(INF), [1, -INF], [None, [INF]], (INF,), Pair(None, INF), {"a": {1: INF}},
    collections.UserDict(a=INF), collections.deque([INF]), Decimal("Infinity"), Point(INF),
    np.array([1, INF], "f2"), np.array([1, -INF], ">f8"), np.array([[INF]])[:, ::-1],
    [math.nan, np.float64(INF)], Tensors(-INF), [2**70, INF],
]  # fmt: skip


def test_infinity_is_refused_and_never_null(server_hubs, connect):
    models = {
        "values": ModelSpec(lambda batch: [INFINITE[each] for each in batch], batch_size=8),
        "floats": ModelSpec(lambda batch: [np.float32([1, -INF]) for _ in batch], batch_size=8),
    }
    hub = server_hubs(models)
    app, events = App(hub), InEvents(hub)
    for case in range(len(INFINITE)):
        answer = app.ask("POST", "/v1/models/values:predict", {"instances": [case]})
        assert (answer.status, "an infinite number" in answer.json["error"]) == (400, True), case
        with pytest.raises(Exception, match="an infinite number") as caught:
            events.values("values", [case])
        assert caught.value.code == 400
    client = InJson(hub)
    with pytest.raises(Exception, match=r"output 'output' has an infinite .* ask for binary data"):
        client.values("floats", [1])
    assert InBinary(hub).values("floats", [1]) == [1, -INF]
    assert connect(models, InGrpc).values("floats", [1]) == [1, -INF]
    told = tensor("FP64", [1], [0])
    body = json.dumps({"inputs": [told]}).replace("[0]", "[1e400]").encode()
    for text, advice in ((body, "infinity"), (body.replace(b"1e400", b"NaN"), "NaN is null")):
        answer = app.ask("POST", "/v2/models/floats/infer", text)
        assert (answer.status, advice in answer.json["error"]) == (400, True), answer.json


SENT = [  # output, value of JSON
    ({2: "a", 2.5: "b", True: "c", None: "d"},
     {"2": "a", "2.5": "b", "true": "c", "null": "d"}),
    ({np.int64(3): 1, np.float32(0.5): 2, np.bool_(False): 3, np.str_("k"): 4},
     {"3": 1, "0.5": 2, "false": 3, "k": 4}),
    ({2**70: {1: 2**70}}, {str(2**70): {"1": 2**70}}),
    (Pair(1, [Pair(2, "b")]), [1, [[2, "b"]]]),
    (Pair({1: 2}, 2**70), [{"1": 2}, 2**70]),
    (collections.UserDict(a=collections.UserDict({1: 2**70})), {"a": {"1": 2**70}}),
    (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    (collections.ChainMap({"a": 1}), {"a": 1}),
    (collections.Counter("aab"), {"a": 2, "b": 1}),
    (collections.deque([1, collections.deque([2**70])]), [1, [2**70]]),
    (collections.UserList([1, "a"]), [1, "a"]),
    (range(3), [0, 1, 2]),
    (Decimal("1.10"), 1.1),
    ([Decimal("123456789012345678901234567890"), Decimal("NaN"), Decimal("-1E+3")],
     [123456789012345678901234567890, None, -1000.0]),
    ({1: Decimal("0.5"), "b": b"\xff"}, {"1": 0.5, "b": {"b64": "/w=="}}),
    (Point(math.nan), {"x": None}),
    (np.str_("é"), "é"),
    ("null", "null"),
]  # fmt: skip

NOT_SENT = [  # output, what the error says of it
    ("\ud800", "can't encode character '\\ud800' in position 0: surrogates not allowed"),
    (["fine", {"a": "b\udfff"}], "character '\\udfff' in position 1"),
    ({"\ud800": 1}, "character '\\ud800'"),
    ({(1, 2): 3}, "a key must be a str or a number, not tuple"),
    ({b"a": 3}, "a key must be a str or a number, not bytes"),
    ({1, 2}, "set"),
    (1j, "complex"),
    *(
        (each, 'return its .astype("float64")')
        for each in (
            np.longdouble(1),
            np.array([1], "g"),
            {"a": [np.longdouble(1), None]},
            np.array([1], "G"),
        )
    ),
    (object(), "object"),
]


def test_outputs_become_json_as_json_dumps_makes_it_and_beyond(server_hubs):
    cases = [each for each, _ in SENT + NOT_SENT]
    hub = server_hubs({"values": ModelSpec(lambda batch: [cases[n] for n in batch], batch_size=8)})
    app, events = App(hub), InEvents(hub)
    for case, (_, value) in enumerate(SENT):
        for count in (1, 2):
            answer = app.ask("POST", "/v1/models/values:predict", {"instances": [case] * count})
            assert (case, answer.json) == (case, {"predictions": [value] * count})
        assert events.values("values", [case]) == [value]
    for case, (_, complaint) in enumerate(NOT_SENT, len(SENT)):
        answer = app.ask("POST", "/v1/models/values:predict", {"instances": [case]})
        assert (answer.status, complaint in answer.json["error"]) == (500, True), answer.json


def test_an_output_that_is_nested_too_deeply_is_no_fault_of_the_server(server_hubs):
    app = App(server_hubs({"echo": ModelSpec(list, batch_size=8)}))
    for levels, status in ((200, 200), (300, 400), (1000, 400)):
        body = b'{"instances": ' + b"[" * levels + b"1" + b"]" * levels + b"}"
        answer = app.ask("POST", "/v1/models/echo:predict", body)
        assert answer.status == status, answer.json
        assert status == 200 or "nested too deeply: more than 254" in answer.json["error"]


OBJECTS = [  # path, body, status, what the error says
    ("/v1/models/double:predict", b'{"instances": [1]}', 200, ""),
    ("/v2/models/double/infer", json.dumps({"inputs": [tensor("INT64", [1], [1])]}).encode(), 200,
     ""),
    *(("/v2/repository/models/double/load", body, status, text) for body, status, text in (
        (b"{}", 200, ""),
        (b'{"parameters": {"config": "{}"}}', 400, "'config'"),
        (b'{"parameters": {"file:1/model.py": ""}}', 400, "'file:1/model.py'"),
        (b'{"parameters": {"other": 1}}', 400, "'other' is not supported"),
        (b'{"parameter": {}}', 400, "field 'parameter' is not supported; the body may have param"),
        (b'{"parameters": []}', 400, "parameters of the request must be an object, not []"),
    )),
    *(("/v2/repository/models/double/unload", body, status, text) for body, status, text in (
        (b'{"parameters": {"unload_dependents": false}}', 200, ""),
        (b'{"parameters": {"unload_dependents": 1}}', 400, "must be true or false, not 1"),
        (b'{"parameters": {"force": true}}', 400, "'force' is not supported; supported is unload"),
        (b'{"unload_dependents": true}', 400, "field 'unload_dependents' is not supported"),
    )),
    *(("/v2/repository/index", body, status, text) for body, status, text in (
        (b'{"ready": null}', 200, ""),
        (b'{"ready": "yes"}', 400, "ready must be true or false, not 'yes'"),
        (b'{"name": "a"}', 400, "field 'name' is not supported; the body may have ready"),
    )),
]  # fmt: skip
REFUSED = [  # a body, what the error says
    (b"{", "is not JSON"),
    (b"\xff", "is not JSON"),
    (BOM, "is not JSON"),
    (BOM + BOM + b"{}", "is not JSON"),
    (b'{"a": "\\ud800"}', "is not JSON: no low surrogate in string"),
    (b'{"a": "\xed\xa0\x80"}', "surrogates not allowed"),
    ("{}".encode("utf-16"), "is not JSON"),
    (b"[]", "must be a JSON object"),
]


def test_every_body_is_checked_and_may_begin_with_a_byte_order_mark(server_hubs):
    app = App(server_hubs({"double": ModelSpec(double, batch_size=8), "text": SHAPED["text"]}))
    for path, body, status, text in OBJECTS:
        for given in (body, BOM + body):
            answer = app.ask("POST", path, given)
            assert answer.status == status, (path, given, answer.json)
            assert status == 200 or text in answer.json["error"], answer.json
    for path in {path: None for path, *_ in OBJECTS}:
        for body, text in REFUSED:
            answer = app.ask("POST", path, body)
            assert (answer.status, text in answer.json["error"]) == (400, True), (path, body)
    head = BOM + json.dumps({"inputs": [tensor("INT64", [1], [1])]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    assert app.ask("POST", "/v2/models/double/infer", head, headers).status == 200
    large = b'{"instances": ["' + b"x" * (1 << 20) + b'"]}'
    deep = large.replace(b"]", b"," + b"[" * 900 + b"]" * 900 + b"]")
    answer = app.ask("POST", "/v1/models/double:predict", deep)
    assert (answer.status, "nested too deeply" in answer.json["error"]) == (400, True)
    for body in (large, BOM + large):
        assert app.ask("POST", "/v1/models/double:predict", body).status == 200
    body = large.replace(b'["x', b'[["x').replace(b'x"]', b'x"]]')
    (((text,),),) = app.ask("POST", "/v1/models/text:predict", body).json.values()
    assert len(text) == 1 << 20


def lengths(batch):
    return [[0.0] * each for each in batch]


def arrays(batch):
    return [np.zeros(each) for each in batch]


FORMLESS = {  # model, what the error says
    "lengths": (lengths, "lists of different lengths in one list"),
    "arrays": (arrays, "rows of the shapes [1], [2]"),
    "ranks": (lambda batch: [np.zeros((1,) * each) for each in batch], "rows of the shapes [1], ["),
    "fields": (lambda batch: [{str(each): each} for each in batch], "different fields"),
    "nothing": (lambda batch: [None for _ in batch], "has None, which is neither"),
    "objects": (lambda batch: [[{"a": 1}] for _ in batch], "has {'a': 1}, which is neither"),
}
ROW, ROWS = {"output": TensorSpec("FP32", (3,))}, {"output": TensorSpec("FP32", (-1,))}
MISDECLARED = {  # model, declared outputs, whether another request gets them, what the error says
    "fixed": ("lengths", ROW, False, "declares FP32 of the shape [-1, 3]"),
    "any": ("lengths", ROWS, True, "send one item in a request"),
    "fixed_arrays": ("arrays", ROW, False, "rows of the shapes [1], [2], but the model declares"),
    "any_arrays": ("arrays", ROWS, True, "send one item in a request"),
    "nothing": ("nothing", ROW, False, "but the model declares FP32"),
    "objects": ("objects", ROW, False, "but the model declares FP32"),
    "fields": ("fields", ROW, False, "different fields, but the model declares the outputs"),
}


@pytest.mark.parametrize("kind", [InJson, InBinary, InGrpc])
def test_outputs_that_are_no_tensors_are_refused_with_what_sends_them(server_hubs, connect, kind):
    models = {name: ModelSpec(model, batch_size=64) for name, (model, _) in FORMLESS.items()}
    client, values = connect(models, kind), InTfServing(server_hubs(models))
    for name, (_, complaint) in FORMLESS.items():
        with pytest.raises(Exception, match="/v1/models/NAME:predict") as caught:
            client.values(name, [1, 2])
        assert complaint in str(caught.value)
        assert caught.value.code in (400, "INVALID_ARGUMENT")
        assert values.ask(f"/v1/models/{name}:predict", {"instances": [1, 2]}).status == 200


@pytest.mark.parametrize("kind", [InJson, InBinary, InGrpc])
def test_outputs_that_cannot_be_what_is_declared_are_a_fault_of_the_model(connect, kind):
    models = {
        name: ModelSpec(FORMLESS[model][0], batch_size=64, outputs=outputs)
        for name, (model, outputs, _, _) in MISDECLARED.items()
    }
    client = connect(models, kind)
    for name, (*_, of_request, complaint) in MISDECLARED.items():
        with pytest.raises(Exception, match=re.escape(complaint)) as caught:
            client.values(name, [1, 2])
        codes = (400, "INVALID_ARGUMENT") if of_request else (500, "INTERNAL")
        assert caught.value.code in codes, name


def test_a_model_that_streams_is_refused_with_the_paths_that_stream(app):
    told = {"inputs": [tensor("INT64", [1], [2])]}
    for path, body in (("v1/models/counts:predict", {"instances": [2]}),
                       ("v2/models/counts/infer", told)):  # fmt: skip
        answer = app.ask("POST", f"/{path}", body)
        assert (answer.status, "ask /v1/models/NAME:stream" in answer.json["error"]) == (400, True)


def test_a_form_that_json_does_not_have_is_refused_with_the_one_that_has_it(server_hubs):
    specs = {"y": TensorSpec("BF16")}
    app = App(server_hubs({
        "bf16": ModelSpec(double, batch_size=8, outputs=specs),
        "png": ModelSpec(lambda batch: [b"\x89PNG" for _ in batch], batch_size=8),
    }))  # fmt: skip
    told = tensor("FP32", [1], [1.5])
    for model in ("bf16", "png"):
        answer = app.ask("POST", f"/v2/models/{model}/infer", {"inputs": [told]})
        assert (answer.status, "ask for binary data" in answer.json["error"]) == (400, True)
        in_binary(app, model, told)
    for told, remedy in (
        (tensor("BF16", [1], [1.5]), "send binary data"),
        (tensor("FP32", [2, 2], [[1], [2, 3]]), "pad them, or send a request for each length"),
    ):
        answer = app.ask("POST", "/v2/models/png/infer", {"inputs": [told]})
        assert (answer.status, remedy in answer.json["error"]) == (400, True)
