"""RedisStreamer: the model runs on other machines."""

from __future__ import annotations

from typing import NoReturn

from .._backend import Backend
from .._options import Options
from .._streamer import BaseStreamer
from .explanation import explain


class RedisStreamer(BaseStreamer):
    """Sends the requests of a web process to the workers behind a Redis broker.

    It has the methods of `ThreadedStreamer`. The workers are started elsewhere, by
    `run_redis_workers_forever` or ``python -m service_streamer redis-worker``, with the same
    broker and prefix::

        streamer = RedisStreamer(redis_broker="redis://broker:6379", prefix="sentiment")
        outputs = streamer.predict(["one item", "another"])

    Nothing is sent to a broker, and nothing is asked of it, before the first request. A request
    survives the death of a worker, a broken connection, and a broker that has lost its data;
    without a broker it waits for 10 seconds, and the very first for one, before it ends with
    `BrokerError`. In a forked child it is a client of its own.

    Items and outputs are pickled: who can write to the broker can run code in the workers and, by
    answers, here. With a `secret`, which workers and clients share, each message is signed, and
    what is not signed by it is refused before it is unpickled.

    Args:
        redis_broker: ``host:port``, or a URL: ``redis://user:password@host:port/database``,
            ``rediss://`` (TLS), ``unix:///path``,
            ``redis+sentinel://host:port,host:port/service/database``,
            ``redis+cluster://host:port,host:port``.
        prefix: which workers: those with the same one. A str without braces.
        batch_size: most items per message; larger requests travel in several. The workers have a
            batch_size of their own.
        worker_timeout: seconds that `predict` and `apredict` may take; None: no limit.
        max_queue: most requests in the broker's queue, from all clients, and most items that then
            wait here. None: 65,536. An empty queue takes any request, also one with more items.
        overflow: what happens to more: "block" the caller, or "reject" its request with
            `QueueFull`.
        output: "items" or "batch", as for `ThreadedStreamer`.
        secret: a str or bytes; None: messages are not signed.

    Raises:
        ImportError: the extra ``redis`` is not installed.
        TypeError, ValueError: a setting is wrong; the message names it and its value.
    """

    def __init__(
        self,
        redis_broker: str = "localhost:6379",
        prefix: str = "",
        *,
        batch_size: int = 128,
        worker_timeout: float | None = 20,
        max_queue: int | None = None,
        overflow: str = "block",
        output: str = "items",
        secret: str | bytes | None = None,
    ) -> None:
        from .client import RedisOptions  # redis-py is an extra

        options = Options(
            batch_size=batch_size,
            worker_timeout=worker_timeout,
            max_queue=max_queue,
            overflow=overflow,
            output=output,
        )
        self._redis_options = RedisOptions(redis_broker, prefix, secret)
        self._shown = f"{type(self).__name__}({prefix!r})"
        super().__init__(options, self._make_backend(options))

    def explain(self) -> str:
        """Say in words how requests fare, and what the queue at the broker says of the workers."""
        return explain(self._name(), self.stats(), getattr(self._backend, "away", ""))

    def destroy_workers(self) -> NoReturn:
        """Raise: the workers are not the client's."""
        raise NotImplementedError(
            "a RedisStreamer does not own the workers: end them where they were started, and "
            "close() the client"
        )

    # -------------------------------------------------------------------- private

    def _make_backend(self, options: Options) -> Backend:
        from .client import RedisClient

        return RedisClient(options, self._redis_options)

    def _backend_in_child(self) -> Backend:
        return self._make_backend(self._options)

    def _name(self) -> str:
        return self._shown
