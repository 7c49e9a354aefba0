"""RedisStreamer: sends requests to workers on any machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from .._base.grouping import KeyFunction, WeightFunction, client_grouping
from .._base.messages import no_such_option
from .._base.option_names import known_options
from .._base.options import Options
from .._base.system import needs_linux
from .._base.types import (
    CacheBounds,
    Coalesce,
    FilePath,
    Item,
    Output,
    Overflow,
    Piece,
    Result,
)
from .._engine.backend import Backend
from .._models.model import name_of
from .._statistics.parts import Kind
from .._statistics.stats import StreamerStats
from .._streamers.streamer import BaseStreamer


class RedisStreamer(BaseStreamer[Item, Result, Piece]):
    """Sends the requests of a web process to workers through a Redis broker.

    It has the methods of `ThreadedStreamer`, except `configure` and `destroy_workers`. Start the
    workers separately, with `RedisWorker` or ``python -m service_streamer redis-worker``, and give
    them the same broker and prefix.

    The constructor does not connect; the first request does. A request survives the death of a
    worker, a broken connection, and a broker that loses its data. If the broker is unreachable for
    10 seconds, requests raise `BrokerError`; before the first connection, after 1 second. A forked
    child is a separate client.

    Items and outputs are pickled. So write access to the broker is enough to run code in workers
    and clients. With a ``secret``, which workers and clients share, each message is signed with
    HMAC-SHA256, and a message without a valid signature is dropped before it is unpickled.

    Args:
        redis_broker: ``host:port`` or a URL: ``redis://user:password@host:port/database``,
            ``rediss://`` (TLS), ``unix:///path``,
            ``redis+sentinel://host:port,host:port/service/database`` or
            ``redis+cluster://host:port,host:port``.
        prefix: the name of the queue, the same as in the workers. A str without braces.
        batch_size: most items per message; a larger request is sent as several messages. The
            workers have their own batch_size.
        worker_timeout: seconds after which `predict` and `apredict` raise `RequestTimeout`. None:
            no limit.
        max_queue: most messages in the broker's queue, from all clients. Those of a priority below
            0 leave the others their room. While it is full, also the most items that wait in this
            process. None: 65,536. An empty queue accepts a request of any size.
        overflow: when the queue is full, "block" makes the caller wait for room, and "reject"
            raises `QueueFull`.
        output: "items" or "batch", as for `ThreadedStreamer`.
        coalesce, cache: as for `ThreadedStreamer`, for the items of this process.
        key, weight, bucket: as for `ThreadedStreamer`, the same in all clients. The workers have
            ``max_weight`` and the same ``bucket``.
        shards: the number of parts of the queue, at most 16. Each client uses one of them at
            random. A Redis Cluster spreads them over its nodes. The workers have at least as many.
        secret: a str or bytes, the same as in the workers. None: messages are not signed.
        options: a TOML file with more of these options, as for `ThreadedStreamer`.

    Raises:
        ImportError: the extra ``redis`` is not installed.
        TypeError, ValueError: a setting is invalid. The message names the setting and its value.

    Example:
        >>> with RedisStreamer("localhost:6379", prefix="upper") as streamer:
        ...     streamer.predict(["one item", "another"])
        ['ONE ITEM', 'ANOTHER']
    """

    _kind = Kind.REDIS
    _needs_ready_worker = False

    @known_options
    def __init__(
        self,
        redis_broker: str = "localhost:6379",
        prefix: str = "",
        *,
        batch_size: int = 128,
        worker_timeout: float | None = 20,
        max_queue: int | None = None,
        overflow: Overflow = "block",
        output: Output = "items",
        key: KeyFunction | str | None = None,
        weight: WeightFunction | str | None = None,
        bucket: Sequence[float] | None = None,
        coalesce: Coalesce = False,
        cache: CacheBounds = None,
        shards: int = 1,
        secret: str | bytes | None = None,
        options: FilePath | None = None,
    ) -> None:
        needs_linux(type(self).__name__)
        from .client.backend import RedisOptions  # redis-py is an extra

        if callable(redis_broker):
            raise no_such_option(
                f"a RedisStreamer runs no model, but got {name_of(redis_broker)}: give the "
                "model to a RedisWorker, and here only the broker and the prefix"
            )
        settings = Options(
            batch_size=batch_size,
            worker_timeout=worker_timeout,
            max_queue=max_queue,
            overflow=overflow,
            output=output,
            grouping=client_grouping(key, weight, bucket),
            coalesce=coalesce,
            cache=cache,
        )
        self._redis_options = RedisOptions(redis_broker, prefix, secret, shards)
        self._shown = f"{type(self).__name__}({prefix!r})"
        super().__init__(settings, self._make_backend(settings))

    def explain(self) -> str:
        """Return a report: times, failures, the queue at the broker, its workers, and one hint."""
        from .explanation import explain  # left to reports

        name, stats = self._name(), self.stats()
        text = explain(name, stats, getattr(self._backend, "unreachable", ""))
        return self._explanation(text, name, stats)

    def destroy_workers(self) -> NoReturn:
        """Raise NotImplementedError: a client does not own the workers."""
        raise NotImplementedError(
            "a RedisStreamer does not own the workers: stop them where they were started, and "
            "close() the client"
        )

    # -------------------------------------------------------------------- private

    @staticmethod
    def _html(name: str, stats: StreamerStats) -> str:
        from .._streamers.notebook import of_stats
        from .explanation import verdict

        stream = stats.stream
        sentence = "The queue cannot be read." if stream is None else verdict(stream, stats)
        return of_stats(stats, name, sentence)

    def _verdict(self, stats: StreamerStats) -> str:
        from .explanation import verdict

        if stats.stream is None:
            return f"The queue cannot be read: {getattr(self._backend, 'unreachable', '')}"
        return verdict(stats.stream, stats)

    def _make_backend(self, options: Options) -> Backend:
        from .client.backend import RedisClient

        return RedisClient(options, self._redis_options)

    def _backend_in_child(self) -> Backend:
        return self._make_backend(self._options)

    def _name(self) -> str:
        return self._shown
