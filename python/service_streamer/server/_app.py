"""The routes as an application of ASGI, for the web application that users have."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from .._base import options as _options
from .._base.messages import wrong_option
from ..hub import ModelHub
from ._access import Access, TokenFile
from ._http.asgi import AsgiApplication
from ._http.bodies import BODY_LIMIT, JSON_LIMIT, Bodies
from ._http.routes import Application
from ._service import Service


def create_app(
    hub: ModelHub,
    *,
    body_limit: int | str = BODY_LIMIT,
    max_json_body: int | str = JSON_LIMIT,
    repository: str | None = None,
    infer_token_file: str | os.PathLike[str] | None = None,
    control_token_file: str | os.PathLike[str] | None = None,
    introspection: bool = True,
) -> Callable[[Any, Any, Any], Awaitable[None]]:
    """Return the routes of the server as an application of ASGI.

    It can be mounted in an application of FastAPI or Starlette, whose middleware applies to it, or
    run alone. It needs no lifespan. It answers in one event loop.

    Args:
        hub: the models. The caller closes it; `lifespan` does so.
        body_limit: most bytes of a body, also as "64MiB". A larger one is refused with status 413.
        max_json_body: most bytes of JSON in it. Binary tensors may follow.
        repository: which requests may load and unload models: "read-only" (none), "token", or
            "open" (all that pass the middleware). None: "token" if there is a
            ``control_token_file``, else "read-only".
        infer_token_file: contains the tokens that requests need, one in each line. It is read again
            when it changes. None: they need none.
        control_token_file: contains the tokens that may load and unload models, and all else.
        introspection: also tell the statistics and the configuration of models.

    Raises:
        TypeError, ValueError: an argument is invalid. The message names it.

    Example:
        >>> from fastapi import FastAPI
        >>> from service_streamer.hub import ModelHub, ModelSpec
        >>> from service_streamer.server import create_app, lifespan
        >>> hub = ModelHub({"sorted": ModelSpec(sorted, batch_size=64)})
        >>> app = FastAPI(lifespan=lifespan(hub))
        >>> app.mount("/models", create_app(hub))
        >>> hub.close()
    """
    if not isinstance(hub, ModelHub):
        raise wrong_option(f"hub must be a ModelHub, not {hub!r}", TypeError)
    limit = _options.memory("body_limit", body_limit) or BODY_LIMIT
    json_limit = _options.memory("max_json_body", max_json_body) or JSON_LIMIT
    access = access_of(repository, infer_token_file, control_token_file)
    _options.flag("introspection", introspection)
    service = Service(hub, introspection)
    return AsgiApplication(Application(service, access), Bodies(limit, json_limit))


def access_of(
    repository: str | None,
    infer_token_file: str | os.PathLike[str] | None,
    control_token_file: str | os.PathLike[str] | None,
) -> Access:
    """Return the access that arguments of `create_app` describe."""
    infer, control = (
        None if each is None else TokenFile(each) for each in (infer_token_file, control_token_file)
    )
    return Access(repository, infer, control)


def lifespan(hub: ModelHub) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """Return a lifespan for the application in which `create_app` is mounted.

    It closes the hub when the application ends, after all requests have ended.

    Args:
        hub: the models.

    Example:
        >>> from starlette.applications import Starlette
        >>> from starlette.routing import Mount
        >>> from service_streamer.hub import ModelHub, ModelSpec
        >>> from service_streamer.server import create_app, lifespan
        >>> hub = ModelHub({"sorted": ModelSpec(sorted, batch_size=64)})
        >>> app = Starlette(routes=[Mount("/models", create_app(hub))], lifespan=lifespan(hub))
        >>> hub.close()
    """

    @contextlib.asynccontextmanager
    async def run(app: Any) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.to_thread(hub.close)

    return run
