"""``python -m service_streamer serve``: a Streamer of its own, which other processes connect to."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

from ._errors import StreamerError
from ._process_streamer import Streamer

_MORE = """
SIGTERM and Ctrl-C end it gracefully: what was accepted is answered, new requests wait in their
clients for the next process at the address. A second signal ends it at once.

example:
  python -m service_streamer serve app:Sentiment --address /run/sentiment.sock \\
      --worker-num 2 --cuda-devices 0 1 --model-init-args '["sentiment.pt"]'

and in each web process:
  streamer = Streamer.connect("/run/sentiment.sock")
"""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Stop(BaseException):
    """It was told to end."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    options = vars(_parser().parse_args(arguments))
    name, drain_timeout = options.pop("model"), options.pop("drain_timeout")
    del options["command"]
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
            _say("ends when all requests are answered")
            streamer.close(timeout=drain_timeout)
        return 0
    except (StreamerError, TypeError, ValueError, OSError, ImportError, AttributeError) as error:
        if streamer is not None:
            streamer.close(drain=False, timeout=0)
        _say(f"{type(error).__name__}: {error}")
    return 1


def _stop(number: int, frame: Any) -> NoReturn:
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_DFL)
    raise _Stop


def _say(what: str) -> None:
    print(f"service_streamer: {what}", file=sys.stderr, flush=True)


def _find(name: str) -> Any:
    """Import what is named as ``module:attribute``."""
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
    serve = commands.add_parser(
        "serve",
        help="run a Streamer that other processes connect to",
        description="Runs a model in worker processes, for clients that connect to an address.",
        epilog=_MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,  # what is not given has the default of Streamer
    )
    add = serve.add_argument
    add("model", help="module:attribute of a ManagedModel class or a predict function")
    add("--address", required=True, help='a path, or "@name" for one not in the file system')
    add("--batch-size", type=int, default=64, help="most items per batch (64)")
    add("--max-latency", type=float, help="seconds to wait for company")
    add("--worker-num", "--workers", type=int, help="worker processes (1)")
    add("--cuda-devices", nargs="+", metavar="GPU", help="their GPUs: numbers, UUIDs, MIG")
    add("--model-init-args", type=json.loads, metavar="JSON", help="a list for init_model")
    add("--model-init-kwargs", type=json.loads, metavar="JSON", help="an object for init_model")
    add("--warmup", type=json.loads, metavar="JSON", help="a list of items to predict first")
    add("--mp-start-method", help="spawn, fork or forkserver")
    add("--policy", help="adaptive, greedy or window")
    add("--max-queue", type=int, help="most items in the queue")
    add("--overflow", help="what happens to more: block or reject")
    add("--output", help="items or batch")
    add("--retries", type=int, help="how often a batch is run again whose worker died (1)")
    add("--worker-hang-timeout", type=float, help="seconds after which a batch's worker is killed")
    add("--drain-timeout", type=float, default=None, help="most seconds to answer what is queued")
    return parser


if __name__ == "__main__":
    sys.exit(main())
