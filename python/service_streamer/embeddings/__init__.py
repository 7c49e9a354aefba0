"""Embeddings and rerankers: texts in, vectors or scores out, in batches by the number of tokens.

An `Embedder` has a model, its tokenizer and a streamer. `create_app` serves it by the routes of
OpenAI, and of the rerankers of others.

==========  =====================================================================
_embedder   `Embedder`
_tokenizer  texts and token ids as items, in the caller's thread
_models     what a streamer runs: the model of a module, a file, or its own encode()
_rows       the roles of inputs, and outputs as rows
_pooled     a module of torch, whose outputs become one row for each item
_app        the routes of HTTP
==========  =====================================================================

Importing this package imports numpy, and neither torch nor onnxruntime.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from .._base.messages import missing_package, wrong_option

try:
    import numpy  # noqa: F401
except ImportError as _error:
    raise missing_package(_error, "embeddings") from _error

from .._base import options as _options
from ._embedder import Embedder, Ranked
from ._errors import InvalidRequest, InvalidVector, WrongTask

if TYPE_CHECKING:
    from starlette.applications import Starlette

__all__ = ["Embedder", "InvalidRequest", "InvalidVector", "Ranked", "WrongTask", "create_app"]

for _name in __all__[:-1]:  # help() and tracebacks show the public import path
    globals()[_name].__module__ = __name__
del _name


def create_app(
    embedder: Embedder,
    *,
    reranker: Embedder | None = None,
    name: str | None = None,
    timeout: float | None = 60,
    max_texts: int = 2048,
    body_limit: int | str = "16MiB",
) -> Starlette:
    """Return an ASGI application with the routes of OpenAI's embeddings and of rerankers.

    ``POST /v1/embeddings`` takes what OpenAI's does: texts or token ids, ``encoding_format`` and
    ``dimensions``. ``POST /rerank`` and ``/v1/rerank`` take ``query``, ``documents`` and ``top_n``,
    as those of Cohere, Jina and vLLM, or ``query`` and ``texts``, as that of TEI.
    ``GET /v1/models`` lists the name. Errors have the form of OpenAI's.

    Mount it below a path of its own: `service_streamer.server` has another ``/v1/models``.

    Args:
        embedder: answers the requests. The caller closes it.
        reranker: answers those of ``/rerank``. None: the embedder does, if its model is a reranker.
        name: of the model. Requests for another one get status 404. None: each name is accepted.
        timeout: the most seconds for a request. A client may ask for fewer by the header
            ``X-Request-Timeout``. None: no limit.
        max_texts: the most texts of a request.
        body_limit: the most bytes of a body, also as "16MiB".

    Raises:
        ImportError: the extra ``embeddings`` is not installed.
        TypeError, ValueError: an argument is invalid. The message names it and its value.

    Example:
        >>> import numpy
        >>> from fastapi import FastAPI
        >>> class Model:
        ...     def encode(self, texts):
        ...         return numpy.array([[len(text), 1.0] for text in texts])
        >>> app = FastAPI()
        >>> embedder = Embedder(Model())
        >>> app.mount("/openai", create_app(embedder))
        >>> embedder.close()
    """
    for option, given in (("embedder", embedder), ("reranker", reranker or embedder)):
        if not isinstance(given, Embedder):
            raise wrong_option(f"{option} must be an Embedder, not {given!r}", TypeError)
    limit = _options.timeout("timeout", timeout)
    most, size = _options.count("max_texts", max_texts), _options.memory("body_limit", body_limit)
    try:
        from ._app import Routes
    except ImportError as error:
        raise missing_package(error, "embeddings") from error
    return Routes(embedder, reranker or embedder, name, limit, most, size or sys.maxsize).app()
