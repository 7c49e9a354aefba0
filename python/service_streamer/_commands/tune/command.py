"""The command ``tune``: its arguments, and its order of work."""

from __future__ import annotations

import argparse
import json
import math
import os
from typing import Any

from ..._base.messages import missing_package
from ..._placement.machine import cpu_count
from ..options import CommandError, add_devices, in_seconds, new_parser, read_sample
from .trial import Job

_MOST_WORKERS = 16  # unless the user wants more: each has a model in memory

_EXAMPLE = """
Each trial runs the model in a process of its own with workers, under requests that are due at
random times. It finds the largest rate for which 99 % of the requests are answered within the
target. Trials that cannot beat the best end early. The best are measured again.

It writes tuned.toml, which constructors take as options="tuned.toml", and tuned.svg. If it is
interrupted, the same command goes on where it was.

exit codes: 0: settings were found; 1: all trials have failed; 2: wrong arguments; 3: no settings
keep the target; 130: interrupted.

example:
  service-streamer tune my_model:Sentiment --sample items.json --slo-p99 50ms
"""


def add_to(commands: Any) -> None:
    """Add the parser of the command."""
    add = new_parser(
        commands,
        "tune",
        run,
        help="find the settings of a model for a target of the p99",
        description="Finds batch_size, workers, threads, policy and more: the settings with the "
        'most requests/s whose p99 is within a target. Needs the extra "tune".',
        epilog=_EXAMPLE,
    ).add_argument
    add(
        "model",
        help="module:attribute of a predict function or a ManagedModel class; or a .onnx file",
    )
    add("--sample", required=True, metavar="FILE", help="a JSON list of items, sent in turn")
    add(
        "--slo-p99",
        required=True,
        type=_target,
        metavar="TIME",
        help="target of the p99, such as 50ms or 0.05",
    )
    add(
        *("-o", "--output"),
        default="tuned.toml",
        metavar="FILE",
        help="where the options are written (tuned.toml); the plot is beside it",
    )
    add("--trials", type=int, default=40, metavar="N", help="how many settings are tried (40)")
    add("--seconds", type=in_seconds, default=2.0, help="of each load (2)")
    add("--seed", type=int, default=0, help="of the search (0)")
    add("--items-per-request", type=int, default=1, metavar="N", help="items of one request (1)")
    add("--max-batch-size", type=int, default=256, metavar="N", help="largest batch_size (256)")
    add(
        "--max-workers",
        type=int,
        default=None,
        metavar="N",
        help="most workers (2 per core, up to 16)",
    )
    add("--native", default=None, metavar="FILE", help="the same model as .pt2: it is tried too")
    add("--native-options", type=json.loads, default={}, metavar="JSON", help="of its NativeModel")
    add("--start-timeout", type=in_seconds, default=120.0, help="seconds for a model to load (120)")
    add("--model-init-args", type=json.loads, metavar="JSON", help="a list for init_model")
    add("--model-init-kwargs", type=json.loads, metavar="JSON", help="an object for init_model")
    add("--warmup", type=json.loads, metavar="JSON", help="a list of items for the warm-up")
    add_devices(add)
    add("--mp-start-method", help="spawn, fork or forkserver (spawn)")


def run(
    model: str,
    *,
    sample: str,
    slo_p99: float,
    output: str,
    trials: int,
    seconds: float,
    seed: int,
    items_per_request: int,
    max_batch_size: int,
    max_workers: int | None,
    native: str | None,
    native_options: Any,
    start_timeout: float,
    **options: Any,
) -> int:
    """Search, print the front, and write the options."""
    read_sample(sample)
    if max_workers is None:
        max_workers = min(2 * cpu_count(), _MOST_WORKERS)
    _check(
        trials=trials,
        seconds=seconds,
        items_per_request=items_per_request,
        max_batch_size=max_batch_size,
        max_workers=max_workers,
        start_timeout=start_timeout,
    )
    for option, path in (("--native", native), ("-o", os.path.dirname(os.path.abspath(output)))):
        if path is not None and not os.path.exists(path):
            raise CommandError(f"{option}: {path} does not exist")
    if os.path.isdir(output):
        raise CommandError(f"-o: {output} is a folder: give the path of a file")
    if output.endswith(".svg"):
        raise CommandError(f"-o: {output} would be the name of the plot: give a name in .toml")
    if not isinstance(native_options, dict):
        raise CommandError(f"--native-options must be a JSON object, not {native_options!r}")
    model_options = {
        k: v for k, v in options.items() if k.startswith("model_init") or k == "warmup"
    }
    job = Job(
        model=model,
        sample=os.path.abspath(sample),
        slo=slo_p99,
        seconds=seconds,
        items_per_request=items_per_request,
        native=native,
        native_options=native_options,
        model_options=model_options,
        process_options={k: v for k, v in options.items() if k not in model_options},
        start_timeout=start_timeout,
    )
    try:
        from .tuning import Tuning
    except ModuleNotFoundError as error:
        if str(error.name).split(".")[0] != "optuna":
            raise
        raise missing_package(error, "tune") from None
    tuning = Tuning(
        job, output, trials=trials, seed=seed, most_items=max_batch_size, most_workers=max_workers
    )
    return tuning.run()


def _target(text: str) -> float:
    if 0 < (value := in_seconds(text)) < 3600:
        return value
    raise argparse.ArgumentTypeError(f"must be a time such as 50ms or 0.05, not {text!r}")


def _check(**values: Any) -> None:
    for name, value in values.items():
        least = 0 if isinstance(value, float) else 1
        if value < least or value == 0 or not math.isfinite(value):
            option = name.replace("_", "-")
            wanted = "at least 1" if least else "a number above 0"
            raise CommandError(f"--{option} must be {wanted}, not {value}")
