"""Triton's generate extension: text in, text out, whole or as server-sent events."""

import asyncio
import json

import pytest

pytest.importorskip("http_servers")

import numpy as np
from http_servers import App
from waits import LONG

from service_streamer.hub import ModelSpec, TensorSpec
from service_streamer.server import InvalidInput

TEXT = {"text": TensorSpec("STRING")}


def upper(texts):
    return [text.upper() for text in texts]


def words(texts):
    """Stream the words of each."""
    streams = [text.split() for text in texts]
    for number in range(max(map(len, streams))):
        yield [each[number] if number < len(each) else None for each in streams]


def words_that_fail(texts):
    for text in texts:
        for word in text.split():
            if word == "bad":
                raise InvalidInput("a bad word")
            yield [word]


def joined(rows, parameters):
    return [f"{row['text']}{row['times']}{sorted(parameters.items())}" for row in rows]


MODELS = {
    "upper": ModelSpec(upper, batch_size=8),
    "declared": ModelSpec(upper, batch_size=8, inputs=TEXT, outputs={"out": TensorSpec("STRING")}),
    "column": ModelSpec(
        lambda rows: [np.array([str(row).upper()], object) for row in np.ravel(rows)],
        batch_size=8,
        inputs={"text": TensorSpec("STRING", (1,))},
        outputs={"out": TensorSpec("STRING", (1,))},
    ),
    "bytes": ModelSpec(lambda texts: texts, batch_size=8, inputs={"x": TensorSpec("BYTES")}),
    "named": ModelSpec(lambda texts: [{"a": each, "n": 1} for each in texts], batch_size=8),
    "words": ModelSpec(words, batch_size=8),
    "fails": ModelSpec(words_that_fail, batch_size=1),
    "joined": ModelSpec(joined, batch_size=8, inputs={**TEXT, "times": TensorSpec("INT64")}),
    "numbers": ModelSpec(lambda rows: rows, batch_size=8, inputs={"x": TensorSpec("FP32")}),
    "pairs": ModelSpec(
        lambda rows: [each["a"] + each["b"] for each in rows],
        batch_size=8,
        inputs={"a": TensorSpec("STRING"), "b": TensorSpec("STRING")},
    ),
}


@pytest.fixture
def app(server_hubs):
    return App(server_hubs(MODELS))


def generate(app, model, **body):
    answer = app.ask("POST", f"/v2/models/{model}/generate", body)
    assert answer.status == 200, answer.body
    assert (answer.json.pop("model_name"), answer.json.pop("model_version")) == (model, "1")
    return answer.json


def stream(app, model, **body):
    """The status, and the events of an answer."""

    async def ask():
        answer = await app.answer("POST", f"/v2/models/{model}/generate_stream", body)
        if isinstance(answer.body, bytes):
            return answer.status, json.loads(answer.body)
        assert answer.content_type == "text/event-stream"
        events = b"".join([each async for each in answer.body]).decode().split("\n\n")
        assert events.pop() == ""
        return answer.status, [json.loads(each.removeprefix("data: ")) for each in events]

    return asyncio.run(ask())


@pytest.mark.parametrize("model", ["upper", "declared", "column"])
@pytest.mark.parametrize("text", ["one", "", "\u00e9\u0000", "x" * 100_000])
def test_a_text_has_a_text(app, model, text):
    assert generate(app, model, text_input=text) == {"text_output": text.upper()}


def test_the_name_of_the_input_and_an_id(app):
    assert generate(app, "declared", text="a", id="7") == {"id": "7", "text_output": "A"}
    path = "/v2/models/upper/versions/1/generate"
    answer = app.ask("POST", path, {"text_input": "a", "id": "8"})
    assert (answer.json["id"], answer.headers["x-request-id"]) == ("8", "8")


def test_bytes_are_text_and_fields_are_named(app):
    assert generate(app, "bytes", text_input="\u00e9") == {"text_output": "\u00e9"}
    assert generate(app, "named", text_input="x") == {"a": "x", "n": 1}
    assert generate(app, "pairs", a="x", b="y") == {"text_output": "xy"}


def test_other_fields_are_inputs_or_parameters(app):
    told = generate(app, "joined", text_input="x", times=3, temperature=0.5,
                    parameters={"stop": "a", "timeout": 10_000_000})  # fmt: skip
    assert told == {"text_output": "x3[('stop', 'a'), ('temperature', 0.5)]"}


def test_a_model_that_streams_has_an_event_for_each_piece(app):
    about = {"model_name": "words", "model_version": "1"}
    pieces = [{**about, "text_output": each} for each in ("one", "two")]
    assert stream(app, "words", text_input="one two") == (200, pieces)
    assert stream(app, "words", text_input="one two", parameters={"stream": True}) == (200, pieces)
    assert generate(app, "words", text_input="one two") == {"text_output": "onetwo"}
    assert generate(app, "words", text_input="one", stream=False) == {"text_output": "one"}
    status, events = stream(app, "upper", text_input="a")  # it streams nothing
    assert (status, [each["text_output"] for each in events]) == (200, ["A"])


def test_an_error_of_a_stream_has_a_status_before_it_and_an_event_in_it(app):
    assert stream(app, "fails", text_input="bad") == (400, {"error": "a bad word"})
    status, events = stream(app, "fails", text_input="one bad two")
    assert (status, events[0]["text_output"]) == (200, "one")
    assert events[1:] == [{"error": "a bad word"}]


@pytest.mark.parametrize(
    ("model", "body", "complaint"),
    [
        ("upper", {}, "the field text_input is missing"),
        ("declared", {"input": "x"}, "the field text_input is missing"),
        ("pairs", {"a": "x"}, "the field b is missing"),
        ("pairs", {"text_input": "x", "b": "y"}, "text_input is ambiguous: the inputs are a, b"),
        ("joined", {"text_input": "x"}, "the field times is missing"),
        ("declared", {"text": "x", "text_input": "y"}, "text_input is ambiguous"),
        ("upper", {"text_input": 7}, "text_input must be a string, not 7"),
        ("upper", {"text_input": None}, "text_input must be a string, not None"),
        ("declared", {"text_input": ["x"]}, "text must be a string, not ['x']"),
        ("joined", {"text_input": "x", "times": "3"}, "'3' is not a value of INT64"),
        ("numbers", {"text_input": "x"}, "the model has no input of text"),
        ("upper", {"text_input": "x", "id": 7}, "id must be a string, not 7"),
        ("upper", {"text_input": "x", "parameters": [1]}, "parameters must be an object, not [1]"),
        ("upper", {"text_input": "x", "temperature": 0}, "not supported: 'temperature' of the"),
        ("upper", {"text_input": "x", "stream": "yes"}, "not supported: 'stream' of the request"),
        ("joined", {"text": "x", "times": 1, "a": 1, "parameters": {"a": 2}}, "'a' is given twice"),
        ("joined", {"text": "x", "times": 1, "stop": ["a"]}, "'stop' must be a string, a number"),
        ("bytes", {"text_input": "x", "parameters": {"sequence_id": 1}}, "'sequence_id' of the"),
        ("upper", b"[]", "the body must be a JSON object"),
        ("upper", b"{", "the body is not JSON"),
    ],
)
def test_what_is_wrong_is_named(app, model, body, complaint):
    for verb in ("generate", "generate_stream"):
        answer = app.ask("POST", f"/v2/models/{model}/{verb}", body)
        assert (answer.status, complaint in answer.json["error"]) == (400, True), answer.body


def test_paths_and_methods_that_are_wrong(app):
    assert app.ask("GET", "/v2/models/upper/generate").status == 405
    assert app.ask("POST", "/v2/models/none/generate", {"text_input": "x"}).status == 404
    assert app.ask("POST", "/v2/models/upper/generate", b" " * (2 << 20)).status == 413
    other = {"text_input": "x", "stream": True}
    assert app.ask("POST", "/v2/models/upper/generate", other).status == 400
    assert "generate" in app.ask("GET", "/v2").json["extensions"]


def test_a_client_of_events_reads_it(http_servers):
    """httpx reads the events as they come, over a socket."""
    import httpx

    server = http_servers(MODELS)
    url = f"http://{server.url}/v2/models/words/generate_stream"
    with httpx.stream("POST", url, json={"text_input": "a b c"}, timeout=LONG) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        found = [json.loads(each[6:]) for each in answer.iter_lines() if each]
    assert [each["text_output"] for each in found] == ["a", "b", "c"]
