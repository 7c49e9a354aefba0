"""What the commands share: options of a model, and how its object is found."""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from collections.abc import Callable
from typing import Any

from .._base.options_file import OptionsFile
from .._placement.machine import working_folder
from .._placement.places import RULES

Add = Callable[..., Any]
"""``add_argument`` of a parser"""

ENDS = """
SIGTERM or Ctrl-C stops it gracefully: accepted requests are answered, new requests {new}.
A second signal stops it at once.
"""


Place = tuple[str, int]
"""host and port; or "unix:PATH" and 0"""

PLACEMENT = ("affinity", "numa", "threads_per_worker")
"""the options of `add_placement`"""


class CommandError(Exception):
    """The command cannot run as it was called. The exit code is 2."""


def new_parser(
    commands: Any, name: str, run: Callable[..., int], **about: Any
) -> argparse.ArgumentParser:
    """Return the parser of one command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,  # so the defaults of the class apply
        **about,
    )
    parser.set_defaults(run=run)
    return parser


def add_model_options(add: Add) -> None:
    """Add the options of a model and its batches."""
    add("--options", metavar="FILE", help="a TOML file with a table [options], such as tuned.toml")
    add("--batch-size", type=int, help="most items per batch (64)")
    add("--max-latency", type=in_seconds, help="seconds that a request waits for others (0.1)")
    add("--policy", help="adaptive, greedy or window (adaptive)")
    add(
        "--slo",
        type=in_seconds,
        help="time from arrival to output for 99 %% of the answers (none)",
    )
    add("--model-init-args", type=json.loads, metavar="JSON", help="a list for init_model")
    add("--model-init-kwargs", type=json.loads, metavar="JSON", help="an object for init_model")
    add("--warmup", type=json.loads, metavar="JSON", help="a list of items for the warm-up")


def add_queue_limits(add: Add) -> None:
    """Add the limits of a queue that is in this process or its actors."""
    add("--max-queue", type=int, help="most items in the queue (1024 batches)")
    add("--max-queue-per-tenant", type=int, help="most items of one tenant in the queue (no limit)")


def add_devices(add: Add) -> None:
    """Add the option of the GPUs of the workers."""
    add(
        "--devices",
        "--cuda-devices",
        dest="cuda_devices",
        nargs="+",
        metavar="GPU",
        help="GPUs of the workers: numbers, UUIDs or MIG devices",
    )


class _WordOrList(argparse.Action):
    """Keeps a single word, such as auto, as it is, and other values as a list."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        setattr(namespace, self.dest, values[0] if values[0] in RULES else values)


def add_placement(add: Add) -> None:
    """Add the options of the CPUs of the workers."""
    add(
        "--affinity",
        action=_WordOrList,
        nargs="+",
        metavar="CPUS",
        help="CPUs of each worker: auto, no_smt, or lists such as 0-3 4-7 (all)",
    )
    add(
        "--numa",
        action=_WordOrList,
        nargs="+",
        type=_node,
        metavar="NODE",
        help="NUMA node of each worker: auto, or numbers such as 0 1 (any)",
    )
    add(
        "--threads-per-worker",
        type=int,
        metavar="N",
        help="threads of numpy, torch and others in a worker (its part of the cores)",
    )


def _node(text: str) -> int | str:
    return text if text == "auto" else int(text)


def add_process_options(add: Add, workers: str = "worker processes (1)") -> None:
    """Add the options of worker processes and of their service.

    Args:
        add: ``add_argument`` of the parser.
        workers: the help of ``--workers``.
    """
    add("--workers", "--worker-num", dest="worker_num", type=int, metavar="N", help=workers)
    add_devices(add)
    add_placement(add)
    add("--mp-start-method", help="spawn, fork or forkserver (spawn)")
    add_service_options(add)


def add_service_options(add: Add) -> None:
    """Add the options of a service that has workers: their failures, its end, its log."""
    add(
        "--tenants",
        type=json.loads,
        metavar="JSON",
        help='shares of tenants by name, and "*" for all others: \'{"acme": 3, "*": 1}\'',
    )
    add("--retries", type=int, help="how often a batch runs again if its worker dies (1)")
    add(
        "--worker-hang-timeout",
        type=in_seconds,
        help="most seconds for one batch; then its worker is killed",
    )
    add("--drain-timeout", type=_drain_timeout, help="most seconds to answer accepted requests")
    add(
        "--log-level",
        type=str.upper,
        choices=["DEBUG", "INFO", "WARNING", "ERROR"],
        default="INFO",
        metavar="LEVEL",
        help="debug, info, warning or error (info)",
    )
    add(
        "--log-format",
        choices=["text", "json"],
        default="text",
        help="lines of text, or one JSON object per line (text)",
    )
    add(
        "--http",
        type=place,
        default=None,
        metavar="HOST:PORT",
        help='also serve the web interface there (needs the extra "web" and uvicorn)',
    )


_TIME = re.compile(r"(.*?)(ms|s|)")


def in_seconds(text: str) -> float:
    """Return the seconds that an argument such as 50ms, 2s or 0.05 means."""
    number, unit = _TIME.fullmatch(text.strip()).groups()  # type: ignore[union-attr]
    try:
        return float(number) / (1000 if unit == "ms" else 1)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be a time such as 50ms or 0.05, not {text!r}"
        ) from None


def _drain_timeout(text: str) -> float:
    if not (value := in_seconds(text)) >= 0:
        raise argparse.ArgumentTypeError(f"must be at least 0 seconds, not {text}")
    return value


def fill_in(options: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    """Return options of a streamer, with defaults for those that are nowhere else.

    Args:
        options: of the command line. ``options`` is the file with more of them.
        defaults: by name.
    """
    given = {**OptionsFile.of(options.get("options")).values, **options}
    return {**options, **{name: defaults[name] for name in defaults.keys() - given.keys()}}


def flag(option: str) -> str:
    """Return the flag of an option, for a message."""
    name = {"worker_num": "workers", "cuda_devices": "devices"}.get(option, option)
    return "--" + name.replace("_", "-")


def find(name: str) -> Any:
    """Import the object that is named as ``module:attribute``, or make the model of a .onnx file.

    Raises:
        CommandError: there is no such module, attribute or file.
        ModelFileError: the file cannot be used.
    """
    if is_onnx(name):
        from ..onnx import OnnxModel  # only needed here

        try:
            return OnnxModel(name)
        except FileNotFoundError as error:
            raise CommandError(str(error)) from None
    module, _, path = name.partition(":")
    if not module or not path:
        raise CommandError(
            f"the model must be given as module:attribute, or as a .onnx file, not {name!r}"
        )
    look_in_working_folder()
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):  # it imports what is missing
            raise
        raise CommandError(f"{name}: {error}") from None
    for attribute in path.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError as error:
            raise CommandError(f"{name}: {error}") from None
    return found


def is_onnx(name: str) -> bool:
    """Return True for the name of a .onnx file."""
    return name.endswith(".onnx")


def look_in_working_folder() -> None:
    """Let modules be imported from the working folder."""
    folder = working_folder()
    if "" not in sys.path and folder not in sys.path:
        sys.path.insert(0, folder)


def read_secret(path: str | None) -> bytes | None:
    """Return the secret in a file, without white space around it."""
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read().strip()


def read_sample(path: str) -> list[Any]:
    """Return the sample items in a file.

    Raises:
        CommandError: the file has no list with at least one item.
    """
    try:
        with open(path, encoding="utf-8") as file:
            items = json.load(file)
    except OSError as error:
        raise CommandError(f"--sample: {path}: {error.strerror}") from None
    except ValueError as error:
        raise CommandError(f"--sample: {path} is not JSON: {error}") from None
    if not isinstance(items, list) or not items:
        kind = "an empty list" if items == [] else f"a {type(items).__name__}"
        raise CommandError(f"--sample: {path} must have a list with at least one item, not {kind}")
    return items


UNIX = "unix:"


def place(text: str) -> Place:
    """Return where an argument such as 127.0.0.1:9000, [::]:9000 or unix:/run/x.sock listens."""
    if text.startswith(UNIX) and len(text) > len(UNIX):
        return text, 0
    try:
        return host_and_port(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}; or unix:PATH") from None


def host_and_port(text: str) -> Place:
    """Return the host and the port that an argument such as 127.0.0.1:9000 names."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise argparse.ArgumentTypeError(f"must be HOST:PORT, such as 127.0.0.1:9000, not {text!r}")
    return host, int(port)
