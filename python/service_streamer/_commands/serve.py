"""``serve``: a Streamer for processes of this machine, or many models for clients of HTTP."""

from __future__ import annotations

import os
from typing import Any

from .._processes.streamer import Streamer
from ..hub import ModelHub
from . import logs
from .options import (
    ENDS,
    CommandError,
    Place,
    add_model_options,
    add_process_options,
    add_queue_limits,
    fill_in,
    find,
    is_onnx,
    new_parser,
)
from .serve_hub import add_hub_options, check_no_hub_options, serve_hub
from .serving import serve_until_signal

_EXAMPLE = """
example:
  service-streamer serve my_model:Sentiment --address /run/sentiment.sock \\
      --workers 2 --devices 0 1 --model-init-args '["sentiment.pt"]'

and in each web process:
  streamer = Streamer.connect("/run/sentiment.sock")

or many models, for clients of the Open Inference Protocol or of TensorFlow Serving:
  service-streamer serve models/ --http 0.0.0.0:8000 --memory-budget 12GB
"""


def add_to(commands: Any) -> None:
    """Add the parser of the command."""
    add = new_parser(
        commands,
        "serve",
        run,
        help="run a Streamer that other processes connect to, or a server of many models",
        description="Runs a model in worker processes, for clients that connect to an address. Or "
        "serves a folder of models, or a ModelHub, over HTTP.",
        epilog=ENDS.format(new="wait in their clients for a restart") + _EXAMPLE,
    ).add_argument
    add(
        "model",
        help="module:attribute of a ManagedModel class, a predict function or a ModelHub; a .onnx "
        "file; or a folder of models",
    )
    add("--address", help='a path, or "@name" for an abstract socket name; not for a ModelHub')
    add_model_options(add)
    add_queue_limits(add)
    add("--overflow", help="when the queue is full: block or reject (block)")
    add("--output", help="result type: items or batch (items)")
    add_process_options(
        add, "worker processes (1); of a folder: most that small models share (each has its own)"
    )
    add_hub_options(add)


def run(
    model: str,
    *,
    log_level: str,
    log_format: str,
    http: Place | None,
    drain_timeout: float | None = None,
    **options: Any,
) -> int:
    """Serve until a signal comes."""
    logs.set_up(log_level, log_format)
    is_folder = os.path.isdir(model)
    if not is_folder and ":" not in model and not is_onnx(model):
        raise CommandError(
            f"no folder {model!r}, and a model must be given as module:attribute or a .onnx file"
        )
    target = None if is_folder else find(model)
    if target is None or isinstance(target, ModelHub):
        return serve_hub(model, target, http=http, drain_timeout=drain_timeout, **options)
    if "address" not in options:
        raise CommandError(f"{model} is a model: give the --address of its Streamer")
    check_no_hub_options(model, options)
    serve_until_signal(
        lambda: Streamer(target, **fill_in(options, batch_size=64)),
        lambda streamer: f"{model} is served at {streamer.address}",
        http,
        drain_timeout,
    )
    return 0
