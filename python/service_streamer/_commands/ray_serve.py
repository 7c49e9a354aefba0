"""``ray-serve``: a RayStreamer for processes and jobs of a Ray cluster."""

from __future__ import annotations

import argparse
import json
from typing import Any

from .._ray.streamer import RayStreamer
from . import logs
from .options import (
    ENDS,
    Place,
    add_model_options,
    add_queue_limits,
    add_service_options,
    fill_in,
    find,
    in_seconds,
    new_parser,
)
from .serving import serve_until_signal

_EXAMPLE = """
Without --address it uses the variable RAY_ADDRESS (which Ray sets for a job), else the cluster on
this machine; if there is none, it starts one here, which ends with it.

example:
  service-streamer ray-serve my_model:Sentiment --name sentiment --replicas 1-8 --num-gpus 1 \\
      --model-init-args '["sentiment.pt"]'

and in each process of the cluster:
  streamer = RayStreamer.connect("sentiment")
"""


def add_to(commands: Any) -> None:
    """Add the parser of the command."""
    add = new_parser(
        commands,
        "ray-serve",
        run,
        help="run a RayStreamer that processes of a Ray cluster connect to",
        description="Runs a model in actors of a Ray cluster, for clients that connect to its "
        "name.",
        epilog=ENDS.format(new="raise StreamerClosed") + _EXAMPLE,
    ).add_argument
    add(
        "model",
        help="module:attribute of a ManagedModel class or a predict function; or a .onnx file",
    )
    add("--name", required=True, help="by which RayStreamer.connect() finds it")
    add("--address", dest="ray_address", help="of the cluster: host:port, or auto")
    add(
        "--replicas",
        type=replicas,
        metavar="N | N-M",
        help="actors with the model: a number, or the least and the most, such as 1-8 (1)",
    )
    add(
        "--target-queue-time",
        type=in_seconds,
        help="mean seconds in the queue above which replicas are added (0.05)",
    )
    add("--num-cpus", type=float, help="cores that Ray reserves for a replica (1)")
    add("--num-gpus", type=float, help="GPUs that Ray reserves for a replica (0)")
    add(
        "--resources",
        type=json.loads,
        metavar="JSON",
        help="other resources of a replica, an object",
    )
    add(
        "--runtime-env",
        type=json.loads,
        metavar="JSON",
        help="Ray's runtime environment of the actors, an object",
    )
    add(
        "--placement-timeout",
        type=in_seconds,
        help="seconds until it is an error that no node has these resources (5)",
    )
    add_model_options(add)
    add_queue_limits(add)
    add_service_options(add)


def run(
    model: str,
    *,
    name: str,
    log_level: str,
    log_format: str,
    http: Place | None,
    drain_timeout: float | None = None,
    **options: Any,
) -> int:
    """Serve until a signal comes."""
    logs.set_up(log_level, log_format)
    target = find(model)
    serve_until_signal(
        lambda: RayStreamer(target, name=name, **fill_in(options, batch_size=64)),
        lambda streamer: f"{model} is served as {name!r}",
        http,
        drain_timeout,
    )
    return 0


def replicas(text: str) -> int | tuple[int, int]:
    """Return the number or the range that an argument such as 2 or 1-8 gives."""
    least, dash, most = text.partition("-")
    if not least.isdecimal() or (dash and not most.isdecimal()):
        raise argparse.ArgumentTypeError(
            f"must be a number or a range, such as 2 or 1-8, not {text!r}"
        )
    return (int(least), int(most)) if dash else int(least)
