"""The command line ``python -m service_streamer``.

``serve`` runs a Streamer that other processes of this machine connect to. ``redis-worker`` answers
the clients of a Redis broker.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ._errors import StreamerError
from ._processes.streamer import Streamer
from ._redis.worker import RedisWorker

_ENDS = """
SIGTERM or Ctrl-C stops it gracefully: accepted requests are answered, new requests {new}.
A second signal stops it at once.
"""

_SERVE = """
example:
  python -m service_streamer serve app:Sentiment --address /run/sentiment.sock \\
      --worker-num 2 --cuda-devices 0 1 --model-init-args '["sentiment.pt"]'

and in each web process:
  streamer = Streamer.connect("/run/sentiment.sock")
"""

_REDIS_WORKER = """
While the broker is unreachable, it waits. It exits with code 1 if the broker rejects it (for
instance a wrong password) or the model cannot be loaded.

example:
  python -m service_streamer redis-worker app:Sentiment --broker redis://broker:6379 \\
      --prefix sentiment --workers 2 --devices 0 1 --model-init-args '["sentiment.pt"]'

and in each web process:
  streamer = RedisStreamer("redis://broker:6379", "sentiment")
"""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Stop(BaseException):
    """Raised in the main thread by SIGTERM or Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    options = vars(_parser().parse_args(arguments))
    command = _serve if options.pop("command") == "serve" else _run_redis_worker
    try:
        return command(options.pop("model"), **options)
    except (StreamerError, TypeError, ValueError, OSError, ImportError, AttributeError) as error:
        _say(f"{type(error).__name__}: {error}")
    return 1


def _serve(name: str, drain_timeout: float | None = None, **options: Any) -> int:
    streamer = None
    for number in _SIGNALS:
        signal.signal(number, _stop)
    try:
        streamer = Streamer(_find(name), **options)
        streamer.wait_ready()
        _say(f"{name} is served at {streamer.address}")
        threading.Event().wait()
    except _Stop:
        if streamer is not None:
            _say("stopping: waiting for the requests in flight")
            streamer.close(timeout=drain_timeout)
        return 0
    except BaseException:
        if streamer is not None:
            streamer.close(drain=False, timeout=0)
        raise
    return 0


def _run_redis_worker(
    name: str, secret_file: str | None = None, log_level: str = "INFO", **options: Any
) -> int:
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(message)s")
    secret = None
    if secret_file is not None:
        with open(secret_file, "rb") as file:
            secret = file.read().strip()
    worker = RedisWorker(_find(name), secret=secret, **options)
    _say(f"{worker} is starting")
    worker.run_forever()
    return 0


def _stop(number: int, frame: Any) -> NoReturn:
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_DFL)
    raise _Stop


def _say(what: str) -> None:
    print(f"service_streamer: {what}", file=sys.stderr, flush=True)


def _find(name: str) -> Any:
    """Import the object that is named as ``module:attribute``."""
    module, _, path = name.partition(":")
    if not module or not path:
        raise ValueError(f"the model must be given as module:attribute, not {name!r}")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found = importlib.import_module(module)
    for attribute in path.split("."):
        found = getattr(found, attribute)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m service_streamer")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, **about: Any) -> Callable[..., Any]:
        return commands.add_parser(
            name,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            argument_default=argparse.SUPPRESS,  # so the defaults of the class apply
            **about,
        ).add_argument

    add = command(
        "serve",
        help="run a Streamer that other processes connect to",
        description="Runs a model in worker processes, for clients that connect to an address.",
        epilog=_ENDS.format(new="wait in their clients for a restart") + _SERVE,
    )
    add("model", help="module:attribute of a ManagedModel class or a predict function")
    add("--address", required=True, help='a path, or "@name" for an abstract socket name')
    _add_model_options(add)
    add("--max-queue", type=int, help="most items in the queue (1024 batches)")
    add("--overflow", help="when the queue is full: block or reject (block)")
    add("--output", help="result type: items or batch (items)")

    add = command(
        "redis-worker",
        help="answer the clients of a Redis broker",
        description="Runs a model in worker processes, for RedisStreamer clients on any machine.",
        epilog=_ENDS.format(new="are left to other workers") + _REDIS_WORKER,
    )
    add("model", help="module:attribute of a ManagedModel class or a predict function")
    add(
        *("--broker", "--redis-broker"),
        dest="redis_broker",
        default=os.environ.get("REDIS_BROKER", "localhost:6379"),
        help="host:port or a URL (the variable REDIS_BROKER, or localhost:6379)",
    )
    add("--prefix", help="name of the queue, the same as in the clients")
    add("--secret-file", metavar="FILE", help="contains the secret that signs all messages")
    add("--log-level", help="debug, info, warning or error (info)")
    _add_model_options(add)
    return parser


def _add_model_options(add: Callable[..., Any]) -> None:
    """Add the options of the model and its processes."""
    add("--batch-size", type=int, default=64, help="most items per batch (64)")
    add("--max-latency", type=float, help="seconds that a request waits for others (0.1)")
    add("--worker-num", "--workers", type=int, help="worker processes (1)")
    add(
        "--cuda-devices",
        "--devices",
        nargs="+",
        metavar="GPU",
        help="GPU numbers, UUIDs or MIG devices",
    )
    add("--model-init-args", type=json.loads, metavar="JSON", help="a list for init_model")
    add("--model-init-kwargs", type=json.loads, metavar="JSON", help="an object for init_model")
    add("--warmup", type=json.loads, metavar="JSON", help="a list of items for the warm-up")
    add("--mp-start-method", default="spawn", help="spawn, fork or forkserver (spawn)")
    add("--policy", help="adaptive, greedy or window (adaptive)")
    add("--retries", type=int, help="how often a batch runs again if its worker dies (1)")
    add(
        "--worker-hang-timeout",
        type=float,
        help="most seconds for one batch; then its worker is killed",
    )
    add(
        "--drain-timeout", type=float, default=None, help="most seconds to answer accepted requests"
    )


if __name__ == "__main__":
    sys.exit(main())
