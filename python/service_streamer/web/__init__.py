"""Health probes, statistics, steering and a live page of streamers and hubs, over HTTP.

`create_app` is for ASGI applications (FastAPI, Starlette), `flask_blueprint` for Flask.

Routes below the prefix:

``/``
    the live page
``/live``
    200: the process answers
``/ready``
    200: requests can be answered; 503: they cannot, with the reasons
``/stats``
    the statistics as JSON; ``/stats/schema`` is its JSON schema
``/events``
    the statistics once a second, as server-sent events
``/history``
    the last five minutes, for the plots of the page
``/metrics``
    the statistics for Prometheus; needs the extra ``metrics``
``/control/{streamer}``
    POST changes settings, if ``control`` is given
``/trace?seconds=5&streamer=NAME``
    POST records a timeline for Perfetto, under the same protection as ``/control``

Anything that can send requests to these routes can read the statistics. Mount them behind the same
protection as the rest of the application, or on an internal port.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .. import RedisWorker
from .._base.messages import missing_package
from ..extend import BaseStreamer
from ..hub import ModelHub

if TYPE_CHECKING:
    from flask import Blueprint
    from starlette.applications import Starlette

    from ._site import Control

__all__ = ["create_app", "flask_blueprint"]

Shown = BaseStreamer | RedisWorker | ModelHub
"""what a page can show"""


def create_app(
    streamers: Shown | Mapping[str, Shown],
    control: Control | None = None,
    *,
    ready_queue_share: float | None = 0.9,
    ready_without_workers: bool = False,
) -> Starlette:
    """Return an ASGI application with the routes of this package.

    Args:
        streamers: a streamer, a `RedisWorker` or a `ModelHub`, or a mapping from names to them. A
            single one has the name "default".
        control: enables ``POST /control/{streamer}``. A str is a token that requests send in the
            header ``Authorization: Bearer TOKEN``. A callable takes the request and returns True if
            it may change settings; it may be a coroutine function. None: settings cannot be
            changed.
        ready_queue_share: ``/ready`` answers 503 while more than this part of ``max_queue`` is
            used. None: the queue does not matter.
        ready_without_workers: ``/ready`` answers 200 for a `RedisStreamer` whose broker can be
            used, also while no worker lives. For workers that an autoscaler starts when requests
            wait: without a ready web process there are no requests.

    Raises:
        ImportError: the extra ``web`` is not installed.
        TypeError, ValueError: an argument is invalid. The message names it and its value.

    Example:
        >>> from fastapi import FastAPI
        >>> app = FastAPI()
        >>> streamer = ThreadedStreamer(sorted, batch_size=64)
        >>> app.mount("/streamer", web.create_app(streamer, control="a long random token"))
    """
    from ._site import Site

    site = Site(streamers, control, ready_queue_share, ready_without_workers=ready_without_workers)
    try:
        from ._app import make_app
    except ImportError as error:
        raise missing_package(error, "web") from error
    return make_app(site)


def flask_blueprint(
    streamers: Shown | Mapping[str, Shown],
    control: Control | None = None,
    *,
    name: str = "service_streamer",
    ready_queue_share: float | None = 0.9,
    ready_without_workers: bool = False,
    event_streams: int = 2,
) -> Blueprint:
    """Return a Flask blueprint with the routes of this package.

    Args:
        streamers, ready_queue_share, ready_without_workers: as for `create_app`.
        control: as for `create_app`, but a callable gets Flask's request and is an ordinary
            function.
        name: of the blueprint.
        event_streams: most readers of ``/events`` at the same time. Each needs a thread or greenlet
            of the web server, so give less than it has. Further pages ask for ``/stats`` instead,
            and all pages of a server with one thread.

    Raises:
        ImportError: Flask is not installed.
        TypeError, ValueError: an argument is invalid. The message names it and its value.

    Example:
        >>> from flask import Flask
        >>> app = Flask("service")
        >>> streamer = ThreadedStreamer(sorted, batch_size=64)
        >>> app.register_blueprint(web.flask_blueprint(streamer), url_prefix="/streamer")
        >>> app.test_client().get("/streamer/live").status_code
        200
    """
    from ._site import Site

    site = Site(streamers, control, ready_queue_share, event_streams, ready_without_workers)
    try:
        from ._blueprint import make_blueprint
    except ImportError as error:
        raise missing_package(error, "demo") from error
    return make_blueprint(site, name)
