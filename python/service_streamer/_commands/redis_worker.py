"""``redis-worker``: answers the clients of a Redis broker."""

from __future__ import annotations

import os
from typing import Any

from .._redis.worker import RedisWorker
from . import logs
from .http import http_server
from .options import (
    ENDS,
    Place,
    add_model_options,
    add_process_options,
    fill_in,
    find,
    new_parser,
    read_secret,
)

_EXAMPLE = """
While the broker is unreachable, it waits. It exits with code 1 if the broker rejects it (for
instance a wrong password) or the model cannot be loaded.

example:
  service-streamer redis-worker my_model:Sentiment --broker redis://broker:6379 \\
      --prefix sentiment --workers 2 --devices 0 1 --model-init-args '["sentiment.pt"]'

and in each web process:
  streamer = RedisStreamer("redis://broker:6379", "sentiment")
"""


def add_to(commands: Any) -> None:
    """Add the parser of the command."""
    add = new_parser(
        commands,
        "redis-worker",
        run,
        help="answer the clients of a Redis broker",
        description="Runs a model in worker processes, for RedisStreamer clients on any machine.",
        epilog=ENDS.format(new="are left to other workers") + _EXAMPLE,
    ).add_argument
    add(
        "model",
        help="module:attribute of a ManagedModel class or a predict function; or a .onnx file",
    )
    add(
        *("--broker", "--redis-broker"),
        dest="redis_broker",
        help="host:port or a URL (the variable REDIS_BROKER, or localhost:6379)",
    )
    add("--prefix", help="name of the queue, the same as in the clients")
    add("--shards", type=int, metavar="N", help="parts of the queue, as in the clients (1)")
    add("--secret-file", metavar="FILE", help="contains the secret that signs all messages")
    add_model_options(add)
    add_process_options(add)


def run(
    model: str,
    *,
    log_level: str,
    log_format: str,
    http: Place | None,
    secret_file: str | None = None,
    **options: Any,
) -> int:
    """Answer requests until a signal comes."""
    logs.set_up(log_level, log_format)
    if secret_file is not None:
        options["secret"] = read_secret(secret_file)
    broker = os.environ.get("REDIS_BROKER", "localhost:6379")
    options = fill_in(options, batch_size=64, mp_start_method="spawn", redis_broker=broker)
    with http_server(http) as server:
        worker = RedisWorker(find(model), **options)
        logs.say(f"{worker} is starting")
        if server is not None:
            server.start(worker)
        worker.run_forever()
    return 0
