"""`create_app`: the routes of OpenAI and of rerankers."""

import asyncio
import base64
import json
import logging
import threading

import pytest

pytest.importorskip("numpy")
pytest.importorskip("orjson")
pytest.importorskip("starlette")
pytest.importorskip("httpx")

import httpx
import numpy as np
from embedding_models import Encodes, Predicts, vector_of
from starlette.applications import Starlette
from starlette.routing import Mount
from thread_models import Gate
from waits import LONG, eventually

from service_streamer import WorkerLost
from service_streamer.embeddings import _app, create_app

pytest_plugins = ["web_fixtures"]

EMBEDDINGS, RERANK = "/openai/v1/embeddings", "/openai/rerank"


def ask(app, path, body=None, headers=None, method=None):
    """Ask an application that mounts another one below /openai."""

    async def ask():
        transport = httpx.ASGITransport(Starlette(routes=[Mount("/openai", app)]))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            given = method or ("GET" if body is None else "POST")
            request = http.request(given, path, content=content, headers=headers)
            return await asyncio.wait_for(request, LONG)

    return asyncio.run(ask())


def told(response):
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return response.status_code, error["type"], error["param"], error["code"]


def invalid(param=None, status=400, code=None):
    return status, "invalid_request_error", param, code


@pytest.mark.parametrize("given", ["a", ["a"], ["a", "bcd", "a"]])
@pytest.mark.parametrize("form", [None, "float", "base64"])
def test_texts_become_vectors(embedders, given, form):
    app = create_app(embedders(Encodes()))
    body = {"model": "any", "input": given, "user": "someone"}
    answer = ask(app, EMBEDDINGS, body | ({"encoding_format": form} if form else {})).json()
    texts = [given] if isinstance(given, str) else given
    vectors = [each["embedding"] for each in answer["data"]]
    if form == "base64":
        vectors = [np.frombuffer(base64.b64decode(each), "<f4").tolist() for each in vectors]
    assert vectors == [vector_of(each) for each in texts]
    assert [(each["object"], each["index"]) for each in answer["data"]] == [
        ("embedding", place) for place in range(len(texts))
    ]
    assert answer.keys() == {"object", "data", "model", "usage"}
    assert (answer["object"], answer["model"]) == ("list", "any")
    tokens = len(texts)  # estimated: the model tokenizes itself
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


def test_vectors_are_cut(embedders):
    app = create_app(embedders(Encodes(lambda texts: np.array([[3, 4, 5]]))))
    answer = ask(app, EMBEDDINGS, {"input": "a", "dimensions": 2}).json()
    np.testing.assert_allclose(answer["data"][0]["embedding"], [0.6, 0.8], rtol=1e-6)


@pytest.mark.parametrize("given", [[1, 7, 2], [[1, 7, 2], [8]], ["some text", [1, 7, 2]]])
def test_token_ids_are_counted(embedders, tmp_path, given):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx_models import encoder

    class Fixed:
        vocab_size = 50

        def __call__(self, text):
            return [1, 7, 9, 2]

    path = encoder(tmp_path / "encoder.onnx")
    embedder = embedders(path, Fixed())
    answer = ask(create_app(embedder), EMBEDDINGS, {"input": given}).json()
    texts = [given] if isinstance(given[0], int) else given
    assert len(answer["data"]) == len(texts)
    tokens = sum(4 if isinstance(each, str) else len(each) for each in texts)
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    alone = embedder.embed(texts)
    np.testing.assert_allclose([each["embedding"] for each in answer["data"]], alone, atol=1e-6)
    unknown = embedders(path, lambda text: [1, 7, 9, 2])
    refused = ask(create_app(unknown), EMBEDDINGS, {"input": given})
    assert told(refused) == invalid("input")
    assert "the vocabulary of the model is unknown" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (EMBEDDINGS, {}, invalid("input")),
        (EMBEDDINGS, {"input": []}, invalid("input")),
        (EMBEDDINGS, {"input": {"a": 1}}, invalid("input")),
        (EMBEDDINGS, {"input": ["a"] * 9}, invalid("input")),
        (EMBEDDINGS, {"input": ["a", 1]}, invalid("input")),
        (EMBEDDINGS, {"input": [1, 2]}, invalid("input")),  # the model tokenizes itself
        (EMBEDDINGS, {"input": "a", "encoding_format": "hex"}, invalid("encoding_format")),
        (EMBEDDINGS, {"input": "a", "encoding_format": 1}, invalid("encoding_format")),
        (EMBEDDINGS, {"input": "a", "dimensions": "2"}, invalid("dimensions")),
        (EMBEDDINGS, {"input": "a", "dimensions": 9}, invalid("dimensions")),
        (EMBEDDINGS, {"input": "a", "model": 3}, invalid("model")),
        (EMBEDDINGS, {"input": "a", "model": "b"}, invalid("model", 404, "model_not_found")),
        (EMBEDDINGS, b"{", invalid()),
        (EMBEDDINGS, b'{"input": "\\ud800"}', invalid()),
        (EMBEDDINGS, b"[]", invalid()),
        (EMBEDDINGS, b" " * 1001, invalid(status=413)),
        (EMBEDDINGS, None, invalid(status=405)),
        ("/openai/v1/chat/completions", {}, invalid(status=404)),
        (RERANK, {"query": "a", "documents": ["b"]}, invalid()),  # the model embeds
        (RERANK, {"documents": ["b"]}, invalid("query")),
        (RERANK, {"query": "a"}, invalid("texts")),
        (RERANK, {"query": "a", "documents": []}, invalid("documents")),
        (RERANK, {"query": "a", "documents": ["b"], "top_n": 0}, invalid("top_n")),
    ],
)
def test_what_cannot_be_answered_gets_the_error_of_openai(embedders, path, body, expected):
    app = create_app(embedders(Encodes()), name="mine", max_texts=8, body_limit=1000)
    assert told(ask(app, path, body)) == expected


def test_the_answer_to_another_method_names_the_right_one(embedders):
    response = ask(create_app(embedders(Encodes())), EMBEDDINGS)
    message = "/openai/v1/embeddings does not take GET: use POST"
    assert (response.headers["allow"], response.json()["error"]["message"]) == ("POST", message)


def test_large_answers_are_written_in_another_thread(embedders, monkeypatch):
    threads, written = [], _app._embedded

    def recorded(*arguments):
        threads.append(threading.get_ident())
        return written(*arguments)

    monkeypatch.setattr(_app, "_embedded", recorded)
    for width, count in ((2, 1), (100_001, 2)):
        app = create_app(
            embedders(Encodes(lambda texts, width=width: np.ones((len(texts), width))))
        )
        body = {"input": ["a", "b"][:count], "encoding_format": "base64"}
        assert len(ask(app, EMBEDDINGS, body).json()["data"]) == count
    assert [each == threading.get_ident() for each in threads] == [True, False]


def test_tokens_of_a_reranker_are_counted_as_it_counts_them(embedders):
    ranks = Predicts()
    ranks.max_seq_length = 2
    app = create_app(embedders(Encodes()), reranker=embedders(ranks))
    answer = ask(app, RERANK, {"query": "red cat", "documents": ["cat", "a red cat"]}).json()
    assert answer["usage"] == {"prompt_tokens": 4, "total_tokens": 4}


@pytest.mark.parametrize("value", ["soon", "-1", "nan", "inf"])
def test_an_invalid_deadline_is_refused(embedders, value):
    app = create_app(embedders(Encodes()))
    response = ask(app, EMBEDDINGS, {"input": "a"}, {"X-Request-Timeout": value})
    assert told(response) == invalid()


def test_texts_are_ranked(embedders):
    app = create_app(embedders(Encodes()), reranker=embedders(Predicts()))
    texts = ["cat", "a red cat", "fish"]
    for path in (RERANK, "/openai/v1/rerank"):
        answer = ask(app, path, {"query": "red cat", "documents": texts, "model": "m"}).json()
        assert answer["model"] == "m"
        assert answer["results"] == [
            {"index": 1, "relevance_score": 2.0},
            {"index": 0, "relevance_score": 1.0},
            {"index": 2, "relevance_score": 0.0},
        ]
        assert answer["usage"]["total_tokens"] == 11  # estimated
    documents = [{"text": "cat"}, "red cat"]
    body = {"query": "red cat", "documents": documents, "top_n": 1, "return_documents": True}
    assert ask(app, RERANK, body).json()["results"] == [
        {"index": 1, "relevance_score": 2.0, "document": {"text": "red cat"}}
    ]
    body = {"query": "red cat", "texts": ["cat", "red cat"], "return_text": True}
    assert ask(app, RERANK, body).json() == [
        {"index": 1, "score": 2.0, "text": "red cat"},
        {"index": 0, "score": 1.0, "text": "cat"},
    ]
    assert told(ask(app, RERANK, {"query": "a", "documents": [{"title": "b"}]})) == invalid(
        "documents"
    )
    assert ask(app, EMBEDDINGS, {"input": "a"}).status_code == 200


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (WorkerLost("gone"), (503, "server_error", None, "unavailable")),
        (KeyError("a"), (500, "server_error", None, None)),
        (None, (500, "server_error", None, None)),
    ],
)
def test_failures_of_the_model(embedders, caplog, error, expected):
    def encode(texts):
        if error is not None:
            raise error
        return np.array([[np.nan, 1]])

    app = create_app(embedders(Encodes(encode)))
    with caplog.at_level(logging.ERROR, "service_streamer"):
        response = ask(app, EMBEDDINGS, {"input": "a"})
    assert told(response) == expected
    assert response.headers.get("retry-after") == ("1" if expected[0] == 503 else None)
    logged = [each for each in caplog.records if each.getMessage().startswith("a request failed")]
    assert len(logged) == (expected[0] == 500)


@pytest.fixture
def busy(embedders, threads):
    """An embedder whose model is busy with one text until its gate is opened."""
    gate = Gate(lambda texts: np.array([vector_of(each) for each in texts], "f4"))
    embedder = embedders(Encodes(gate), overflow="reject", max_queue_weight=1)
    threads.run(embedder.embed, ["first"])
    gate.wait_entered()
    yield embedder, gate
    gate.open()
    threads.join()


def test_a_deadline_ends_a_request(busy):
    embedder, gate = busy
    response = ask(create_app(embedder, timeout=0.01), EMBEDDINGS, {"input": "a"})
    assert told(response) == (504, "server_error", None, "timeout")
    headers = {"X-Request-Timeout": "0.01"}
    response = ask(create_app(embedder), EMBEDDINGS, {"input": "a"}, headers)
    assert told(response) == (504, "server_error", None, "timeout")
    assert len(gate.batches) == 1


def test_a_full_queue_is_429(busy, threads):
    embedder, _ = busy
    threads.run(embedder.embed, ["second"])
    eventually(lambda: embedder.stats().queued_items == 1)
    response = ask(create_app(embedder), EMBEDDINGS, {"input": "a"})
    assert told(response) == (429, "requests", None, "rate_limit_exceeded")
    assert int(response.headers["retry-after"]) >= 1


def test_a_client_that_goes_is_cancelled(busy, web_servers):
    import socket

    embedder, _ = busy
    server = web_servers(create_app(embedder))
    body = b'{"input": "a"}'
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        head = f"POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        eventually(lambda: embedder.stats().queued_items == 1)
    eventually(lambda: embedder.stats().queued_items == 0)
    assert embedder.stats().cancelled == 1


def test_many_clients_get_their_own_vectors(embedders, web_servers):
    embedder = embedders(Encodes())
    server = web_servers(create_app(embedder))
    failed = []

    def client(number):
        with httpx.Client(base_url=server.url) as http:
            for turn in range(5):
                texts = [f"{number} {turn}", f"{number}"]
                answer = http.post("/v1/embeddings", json={"input": texts}).json()
                if [each["embedding"] for each in answer["data"]] != list(map(vector_of, texts)):
                    failed.append(answer)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(LONG)
    assert not failed


def test_the_routes_are_beside_those_of_the_server(embedders):
    """`/v1/models` of TensorFlow Serving, and that of OpenAI below a path of its own."""
    pytest.importorskip("httptools")
    from service_streamer.hub import ModelHub, ModelSpec
    from service_streamer.server import create_app as create_server

    with ModelHub({"upper": ModelSpec(list.copy, batch_size=8)}) as hub:
        ours = create_app(embedders(Encodes()), name="mine")
        app = Starlette(routes=[Mount("/openai", ours), Mount("/", create_server(hub))])

        async def both():
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                body = {"instances": ["a"]}
                served = await http.post("/v1/models/upper:predict", json=body)
                assert served.json() == {"predictions": ["a"]}
                served = await http.get("/v1/models/upper")
                assert served.json()["model_version_status"][0]["state"] == "AVAILABLE"
                listed = (await http.get("/openai/v1/models")).json()
                assert [each["id"] for each in listed["data"]] == ["mine"]
                vectors = await http.post(EMBEDDINGS, json={"input": "a", "model": "mine"})
                assert vectors.status_code == 200
                assert (await http.post("/v1/embeddings", json={"input": "a"})).status_code == 404

        asyncio.run(both())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"embedder": 3}, "embedder must be an Embedder, not 3"),
        ({"reranker": 3}, "reranker must be an Embedder, not 3"),
        ({"timeout": -1}, "timeout must be a number of seconds"),
        ({"max_texts": 0}, "max_texts must be an int of at least 1"),
        ({"body_limit": "big"}, "body_limit must be a number of bytes"),
    ],
)
def test_wrong_arguments_are_named(embedders, arguments, message):
    arguments = {"embedder": embedders(Encodes()), **arguments}
    with pytest.raises((TypeError, ValueError), match=message):
        create_app(arguments.pop("embedder"), **arguments)
