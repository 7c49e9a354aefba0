"""What is measured: a model in this process or in workers, a Streamer, a queue, or a URL."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..._base import options
from ..._base.errors import StreamerError
from ..._base.messages import text_of
from ..._base.options_file import OptionsFile
from ..._models.model import check_model
from ..._processes.streamer import Streamer
from ..._redis.streamer import RedisStreamer
from ..._statistics.formats import count
from ..._statistics.stats import StreamerStats
from ..._streamers.streamer import BaseStreamer
from ..._threads.threaded import ThreadedStreamer
from ..options import PLACEMENT, CommandError, find, flag, is_onnx
from ..top.sources import is_broker

CONNECT = 5.0  # s for the first answer of a server that should run already
_MODEL = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_SAMPLES = (["hello"], [1])  # items for a model without --items

Call = Callable[[float], object]
"""sends one request and waits for its answer, at most so many seconds"""


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a target is opened."""

    items: list[Any] | None
    """sample items; None: a model is tried with `_SAMPLES`"""
    items_per_request: int
    timeout: float
    """seconds after which a request counts as an error"""
    body: bytes | None = None
    content_type: str = "application/json"
    prefix: str = ""
    secret: bytes | None = None
    workers: int | None = None
    """worker processes of a model; None: as many as the file of the options says, else a thread"""
    model: dict[str, Any] = dataclasses.field(default_factory=dict)
    """model_init_args, model_init_kwargs, warmup"""
    streamer: dict[str, Any] = dataclasses.field(default_factory=dict)
    """batch_size, max_latency, policy, options and, for workers, those of their processes"""


class BenchTarget:
    """A streamer. The target of a URL is `HttpTarget`.

    Args:
        name: for the report.
        streamer: answers the requests.
        settings: of the command.
        has_batches: its statistics are about the batches of its workers.
        is_own: it was started for this measurement, so its settings may be changed.
    """

    def __init__(
        self,
        name: str,
        streamer: BaseStreamer,
        settings: Settings,
        *,
        has_batches: bool = True,
        is_own: bool = False,
    ) -> None:
        self.name = name
        self.streamer = streamer
        self.is_own = is_own
        self._has_batches = has_batches
        self._timeout = settings.timeout
        self._size = settings.items_per_request
        self._requests: Iterator[list[Any]] = iter(())
        self.items: list[Any] = []
        self._use(settings.items or [])

    def _use(self, items: list[Any]) -> None:
        self.items = items
        # a list, because threads share it: a generator cannot be advanced by two at once
        self._requests = itertools.cycle([self._request(self._size, n) for n in range(len(items))])

    def _request(self, size: int, start: int = 0) -> list[Any]:
        return [self.items[(start * size + i) % len(self.items)] for i in range(size)]

    def choose_items(self) -> None:
        """Find sample items that the model accepts.

        Raises:
            CommandError: it accepts none.
        """
        refusals = []
        for items in _SAMPLES:
            try:
                self.streamer.predict(items, timeout=self._timeout)
            except Exception as error:
                refusals.append(f"{items[0]!r} ({one_line(error)})")
            else:
                return self._use(items)
        raise CommandError(
            f"give sample items with --items or --sample: {self.name} refuses "
            + ", ".join(refusals)
        )

    @contextlib.contextmanager
    def session(self) -> Iterator[Call]:
        """Return a function that makes one request after the other, for one thread."""
        predict, requests, timeout = self.streamer.predict, self._requests, self._timeout
        yield lambda limit: predict(next(requests), timeout=min(limit, timeout))

    def predict(self, size: int, limit: float) -> None:
        """Send one request of `size` items and wait for at most `limit` seconds."""
        self.streamer.predict(self._request(size), timeout=min(limit, self._timeout))

    def stats(self) -> StreamerStats | None:
        """Return the statistics of the streamer that forms the batches, if they are known."""
        return self.streamer.stats() if self._has_batches else None

    def close(self) -> None:
        """End it, with the requests in flight."""
        self.streamer.close(drain=False, timeout=1)


class HttpTarget:
    """A URL, to which each request POSTs a body.

    Args:
        url: the whole URL.
        settings: of the command.
    """

    is_own = False

    def __init__(self, url: str, settings: Settings) -> None:
        import http.client
        import urllib.parse

        self.name = url
        parts = urllib.parse.urlsplit(url)
        secure = parts.scheme == "https"
        kind: Any = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        try:
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise CommandError(f"{url}: {error}") from None
        if not host:
            raise CommandError(f"{url} has no host")
        self._connection: Callable[[], Any] = lambda: kind(host, port)
        self._timeout = settings.timeout
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers = {"Content-Type": settings.content_type}
        if settings.body is not None:
            bodies = [settings.body]
        else:
            items, size = settings.items or [], settings.items_per_request
            bodies = [
                json.dumps([items[(n * size + i) % len(items)] for i in range(size)]).encode()
                for n in range(len(items))
            ]
        self._bodies = itertools.cycle(bodies)

    @contextlib.contextmanager
    def session(self) -> Iterator[Call]:
        """Return a function that makes one request after the other, on one connection."""
        connection = self._connection()

        def call(limit: float) -> None:
            connection.timeout = min(limit, self._timeout)
            if connection.sock is not None:
                connection.sock.settimeout(connection.timeout)
            try:
                connection.request("POST", self._path, next(self._bodies), self._headers)
                response = connection.getresponse()
                response.read()
            except Exception:
                connection.close()  # the next request connects again
                raise
            if response.status >= 400:
                raise HttpError(f"HTTP status {response.status} {response.reason}")

        with contextlib.closing(connection):
            yield call

    def stats(self) -> None:
        """Return None: a URL has no known statistics."""

    def close(self) -> None:
        """Close nothing."""


class HttpError(Exception):
    """The server has answered with an error status."""


AnyTarget = BenchTarget | HttpTarget


def open_target(place: str, settings: Settings) -> AnyTarget:
    """Open a target and check that it answers.

    Raises:
        CommandError: it is unreachable, wrong, or refuses the sample items.
    """
    try:
        target = _open(place, settings)
    except CommandError:
        raise
    except Exception as error:  # of the user's module, too
        raise CommandError(f"{place}: {one_line(error)}") from None
    try:
        if isinstance(target, BenchTarget) and settings.items is None:
            target.choose_items()
        with target.session() as call:
            call(settings.timeout)
    except CommandError:
        target.close()
        raise
    except Exception as error:
        target.close()
        raise CommandError(f"{place}: the first request failed: {one_line(error)}") from None
    return target


def _open(place: str, settings: Settings) -> AnyTarget:
    if place.startswith(("http://", "https://")):
        if settings.items is None and settings.body is None:
            raise CommandError("a URL needs --body FILE, --items JSON or --sample FILE")
        return HttpTarget(place, settings)
    is_model = _MODEL.fullmatch(place) is not None or is_onnx(place)
    if not is_model and settings.items is None:
        raise CommandError(f"{place} needs --items JSON or --sample FILE: a list of sample items")
    if is_model:
        return _open_model(place, settings)
    streamer: BaseStreamer
    if is_broker(place):
        secret = settings.secret
        streamer = RedisStreamer(place, settings.prefix, secret=secret)
        return _connected(BenchTarget(place, streamer, settings, has_batches=False))
    streamer = Streamer.connect(place)
    return _connected(BenchTarget(place, streamer, settings))


def _connected(target: BenchTarget) -> BenchTarget:
    try:
        target.stats()  # raises at once if nothing listens
        target.streamer.wait_ready(CONNECT)
    except StreamerError:
        target.close()
        raise
    return target


def _open_model(place: str, settings: Settings) -> BenchTarget:
    source, given = find(place), settings.streamer
    file = OptionsFile.of(given.get("options")).values
    size = {**file, **given}["batch_size"]
    options.count("batch_size", size)  # before the model is loaded
    if settings.workers is None and "worker_num" not in file:
        if refused := [name for name in _OF_PROCESSES if name in given]:
            flags = ", ".join(map(flag, refused))
            raise CommandError(f"{flags}: for worker processes, so give --workers N")
        predict = source
        if callable(source):
            model = check_model(source, *(settings.model.get(name) for name in _MODEL_OPTIONS))
            predict = model.load(None, size)
        streamer: BaseStreamer = ThreadedStreamer(predict, **given)
        return BenchTarget(f"{place} in a thread", streamer, settings, is_own=True)
    if settings.workers is not None:
        given = {**given, "worker_num": settings.workers}
    started = Streamer(source, **settings.model, **given)
    try:
        started.wait_ready()
    except BaseException:
        started.close(drain=False, timeout=0)
        raise
    workers = count({**file, **given}["worker_num"], "worker")
    return BenchTarget(f"{place} in {workers}", started, settings, is_own=True)


_MODEL_OPTIONS: Sequence[str] = ("model_init_args", "model_init_kwargs", "warmup")
_OF_PROCESSES = ("cuda_devices", "mp_start_method", *PLACEMENT)


def one_line(error: BaseException) -> str:
    """Return the type and the first line of the message of an exception."""
    lines = text_of(error).strip().splitlines()
    name = "" if isinstance(error, StreamerError) else type(error).__name__
    return ": ".join(filter(None, [name, *lines[:1]]))
