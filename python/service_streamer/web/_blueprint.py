"""The routes as a Flask blueprint."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterator

from flask import Blueprint, Response, request

from .._base.messages import wrong_option
from .._waiting import greenlets
from ._broadcaster import RETRY, EventReader, Full
from ._control import MOST_BYTES, Refused
from ._site import EVENTS_HEADERS, TEXT, Answer, Site


def make_blueprint(site: Site, name: str) -> Blueprint:
    """Return the blueprint."""
    views = _Views(site)
    blueprint = Blueprint(name, __name__)
    for path, view in {
        "/": views.static,
        "/live": _answers(site.live),
        "/ready": _answers(site.ready),
        "/stats": _answers(site.stats),
        "/stats/schema": _answers(site.schema),
        "/history": _answers(site.history),
        "/metrics": _answers(site.metrics),
        "/events": views.events,
        "/static/<path:path>": views.static,
    }.items():
        endpoint = path.strip("/").partition("<")[0].replace("/", "_") or "page"
        blueprint.add_url_rule(path, endpoint, view)
    blueprint.add_url_rule("/trace", "trace", views.trace, methods=["POST"])
    blueprint.add_url_rule("/control/<streamer>", "control", views.control, methods=["POST"])
    return blueprint


def _answers(answer: Callable[[], Answer]) -> Callable[[], Response]:
    return lambda: _response(answer())


class _Views:
    """The views of the blueprint that look at the request."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def static(self, path: str = "index.html") -> Response:
        return _response(self._site.asset(path, request.headers.get("If-None-Match")))

    def events(self) -> Response:
        one_thread = not request.environ.get("wsgi.multithread")
        if one_thread and greenlets.hub_of_this_thread() is None:
            text = b"an event stream would block the only thread of this server\n"
            return _response(Answer(503, text, TEXT))
        changed = threading.Event()
        reader = EventReader(self._site.broadcaster, changed.set)
        try:
            reader.join()
        except Full as error:
            return _response(Answer(503, f"{error}\n".encode(), TEXT))
        stream = _stream(reader, changed)
        response = Response(stream, headers=EVENTS_HEADERS, mimetype="text/event-stream")
        # also if the stream never begins
        response.call_on_close(reader.leave)
        return response

    def trace(self) -> Response:
        name = request.args.get("streamer", "default")
        seconds = request.args.get("seconds", "5")
        return self._refusal(name) or _response(self._site.trace(name, seconds, time.sleep))

    def control(self, streamer: str) -> Response:
        if (refused := self._refusal(streamer)) is not None:
            return refused
        return _response(self._site.control(streamer, request.stream.read(MOST_BYTES + 1)))

    def _refusal(self, streamer: str) -> Response | None:
        """Return the response to a request that may change nothing; None: it may."""
        try:
            self._check()
        except Refused as why:
            return _response(self._site.refused(streamer, why))
        return None

    def _check(self) -> None:
        steering = self._site.steering
        steering.check(request.headers.get)
        if (function := steering.function) is None:
            return
        allowed = function(request)
        if inspect.isawaitable(allowed):  # it would count as True
            raise wrong_option(
                f"control must be an ordinary function in Flask, not {function!r}", TypeError
            )
        if not allowed:
            raise Refused(403, "control= does not allow this request")


def _stream(reader: EventReader, changed: threading.Event) -> Iterator[bytes]:
    try:
        yield RETRY
        while (left := reader.left()) > 0:
            changed.clear()
            if (frame := reader.take()) is not None:
                yield frame
            changed.wait(left)
    finally:
        reader.leave()


def _response(answer: Answer) -> Response:
    response = Response(answer.body, answer.status, dict(answer.headers))
    response.content_type = answer.media_type
    return response
