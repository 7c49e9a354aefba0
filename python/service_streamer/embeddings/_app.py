"""The routes of HTTP."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from .._base.http import STATUSES, disconnected, pause
from .._base.messages import describe, text_of
from ._embedder import Embedder
from ._errors import InvalidRequest, WrongTask

Answer = Callable[[Request, dict[str, Any]], Awaitable[Response]]

NAME = "default"
LARGE = 200_000  # numbers of an answer that would hold up an event loop for about 10 ms

_OPENAI = {
    400: ("invalid_request_error", None),
    429: ("requests", "rate_limit_exceeded"),
    499: ("server_error", "cancelled"),
    503: ("server_error", "unavailable"),
    504: ("server_error", "timeout"),
}
"""type and code of OpenAI, by status"""

_logger = logging.getLogger("service_streamer")


class Refused(Exception):
    """A request that is not run."""

    def __init__(
        self, message: str, param: str | None = None, status: int = 400, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code


@dataclasses.dataclass(frozen=True)
class Routes:
    """The endpoints of the application. See `create_app`."""

    embedder: Embedder
    reranker: Embedder
    name: str | None
    timeout: float | None
    max_texts: int
    body_limit: int

    def app(self) -> Starlette:
        """Return the application."""
        rerank = self.post(self.rerank)
        return Starlette(
            routes=[
                Route("/v1/embeddings", self.post(self.embeddings), methods=["POST"]),
                Route("/v1/rerank", rerank, methods=["POST"]),
                Route("/rerank", rerank, methods=["POST"]),
                Route("/v1/models", self.models, methods=["GET"]),
            ],
            exception_handlers={HTTPException: _not_found},
        )

    def post(self, answer: Answer) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return an endpoint, whose work is cancelled when the client goes."""

        async def endpoint(request: Request) -> Response:
            try:
                body = await self._body(request)
                answered: Response = await _unless_gone(request, answer(request, body))
                return answered
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:
                return _failure(error)

        return endpoint

    async def embeddings(self, request: Request, body: dict[str, Any]) -> Response:
        """Return what OpenAI's ``/v1/embeddings`` returns."""
        model = self._model(body)
        form = _field(body, "encoding_format", str, "float")
        if form not in ("float", "base64"):
            what = f"encoding_format must be 'float' or 'base64', not {form!r:.60}"
            raise Refused(what, "encoding_format")
        texts: Any = body.get("input")
        if isinstance(texts, str) or (isinstance(texts, list) and texts and _are_ids(texts)):
            texts = [texts]
        self._check_texts(texts, "input")
        self._check_ids(texts)
        dimensions, timeout = _field(body, "dimensions", int), self._limit(request)
        with _naming("input"):
            items, rows = await self.embedder._arun(texts, None, timeout)
        with _naming("dimensions"):
            vectors = self.embedder._vectors(texts, rows, dimensions)
        about = {"model": model, "usage": _usage(self.embedder, items)}
        if vectors.size <= LARGE:
            return _embedded(vectors, form, about)
        return await asyncio.to_thread(_embedded, vectors, form, about)

    async def rerank(self, request: Request, body: dict[str, Any]) -> Response:
        """Return what ``/rerank`` of Cohere and Jina returns, or that of TEI for ``texts``."""
        model, query = self._model(body), _field(body, "query", str)
        if query is None:
            raise Refused("query must be a str", "query")
        param = "documents" if "documents" in body else "texts"
        documents: Any = body.get(param)
        self._check_texts(documents, param)
        texts = [each.get("text") if isinstance(each, dict) else each for each in documents]
        top_n, timeout = _field(body, "top_n", int), self._limit(request)
        if top_n is not None and top_n < 1:
            raise Refused(f"top_n must be at least 1, not {top_n}", "top_n")
        is_tei = param == "texts"
        score = "score" if is_tei else "relevance_score"
        shown = _field(body, "return_text" if is_tei else "return_documents", bool, False)
        with _naming(param):
            items, rows = await self.reranker._arun(texts, query, timeout)
        results: list[dict[str, Any]] = []
        for each in self.reranker._ranking(rows, top_n):
            results.append({"index": each.index, score: each.score})
            if shown:
                text = {"text": texts[each.index]}
                results[-1] |= text if is_tei else {"document": text}
        if is_tei:
            return _json(200, results)
        usage = _usage(self.reranker, items)
        return _json(200, {"model": model, "results": results, "usage": usage})

    async def models(self, request: Request) -> Response:
        """Answer ``GET /v1/models`` as OpenAI does."""
        model = {"id": self.name or NAME, "object": "model", "created": 0}
        data = [{**model, "owned_by": "service-streamer"}]
        return _json(200, {"object": "list", "data": data})

    def _model(self, body: dict[str, Any]) -> str:
        given: str = _field(body, "model", str, self.name or NAME)
        if self.name is not None and given != self.name:
            what = f"the model {given!r:.200} does not exist: it is {self.name!r}"
            raise Refused(what, "model", 404, "model_not_found")
        return given

    def _check_texts(self, texts: Any, param: str) -> None:
        if not isinstance(texts, list) or not texts:
            raise Refused(f"{param} must be a list with at least one text", param)
        if len(texts) > self.max_texts:
            what = f"{param} has {len(texts)} texts: send at most {self.max_texts} in a request"
            raise Refused(what, param)

    def _check_ids(self, texts: list[Any]) -> None:
        """Refuse token ids that cannot be checked: a wrong one may end the model on a GPU."""
        known = self.embedder._tokenizer
        if known is not None and known.size is None and any(isinstance(t, list) for t in texts):
            what = "input has token ids, and the vocabulary of the model is unknown: send texts"
            raise Refused(what, "input")

    def _limit(self, request: Request) -> float | None:
        given = request.headers.get("x-request-timeout")
        if given is None:
            return self.timeout
        try:
            seconds = float(given)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds < math.inf:
            raise Refused(f"X-Request-Timeout must be a number of seconds, not {given!r:.60}")
        return seconds if self.timeout is None else min(seconds, self.timeout)

    async def _body(self, request: Request) -> dict[str, Any]:
        data = bytearray()
        async for part in request.stream():
            data += part
            if len(data) > self.body_limit:
                raise Refused(f"the body has more than {self.body_limit} bytes", status=413)
        try:
            body = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise Refused(f"the body is no JSON: {error}") from None
        if not isinstance(body, dict):
            raise Refused("the body must be a JSON object")
        return body


def _field(body: dict[str, Any], name: str, kind: type, default: Any = None) -> Any:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not kind:
        raise Refused(f"{name} must be {kind.__name__}, not {value!r:.60}", name)
    return value


@contextlib.contextmanager
def _naming(param: str) -> Iterator[None]:
    """Name the field that an InvalidRequest is about."""
    try:
        yield
    except InvalidRequest as error:
        raise Refused(text_of(error), param) from None


def _usage(embedder: Embedder, items: list[Any]) -> dict[str, int]:
    tokens = embedder._count(items)
    return {"prompt_tokens": tokens, "total_tokens": tokens}


def _embedded(vectors: Any, form: str, about: dict[str, Any]) -> Response:
    told = [base64.b64encode(each).decode() for each in vectors] if form != "float" else vectors
    data = [
        {"object": "embedding", "index": place, "embedding": each}
        for place, each in enumerate(told)
    ]
    return _json(200, {"object": "list", "data": data, **about})


def _are_ids(texts: list[Any]) -> bool:
    return all(type(each) is int for each in texts)


async def _unless_gone(request: Request, work: Awaitable[Any]) -> Any:
    """Return what the work returns. If the client goes, cancel it and raise ClientDisconnect."""
    tasks = [asyncio.ensure_future(each) for each in (work, disconnected(request.receive))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            return tasks[0].result()
        raise ClientDisconnect
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.wait(tasks)


async def _not_found(request: Request, error: Exception) -> Response:
    status, headers = getattr(error, "status_code", 404), getattr(error, "headers", None)
    what = f"{request.method} {request.url.path:.200} does not exist"
    if status == 405:
        allowed = (headers or {}).get("Allow", "another method")
        what = f"{request.url.path:.200} does not take {request.method}: use {allowed}"
    return _json(status, _error(what, "invalid_request_error"), headers)


def _failure(error: Exception) -> Response:
    if isinstance(error, Refused):
        kind = "invalid_request_error"
        return _json(error.status, _error(str(error), kind, error.param, error.code))
    table: tuple[tuple[Any, int], ...] = (((InvalidRequest, WrongTask), 400), *STATUSES)
    for kinds, status in table:
        if isinstance(error, kinds):
            kind, code = _OPENAI[status]
            body = _error(text_of(error) or type(error).__name__, kind, None, code)
            seconds = pause(error, status)
            return _json(status, body, seconds and {"retry-after": str(seconds)})
    about = {"error": describe(error)}
    _logger.error("a request failed: %s", *about.values(), exc_info=error, extra=about)
    return _json(500, _error(describe(error), "server_error"))


def _error(
    message: str, kind: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _json(status: int, content: Any, headers: Any = None) -> Response:
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(body, status, headers, media_type="application/json")
