"""The command ``publish``: copies a version to a folder of models, after it was tried."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from .._base import options
from ..hub import ModelLoadError, UnknownModel
from .logs import say
from .options import CommandError, look_in_working_folder, new_parser

_EXAMPLE = """
A process of its own loads the version first, with its warm-up, and compares its outputs with its
file expected.json. A version that fails is not published. A server of the folder notices the others
by itself. The number of the version is written to stdout.

examples:
  service-streamer publish models/ sentiment build/sentiment
  service-streamer publish models/ sentiment model.onnx --version 5
  service-streamer publish models/ sentiment s3://models/sentiment/5
"""


def add_to(commands: Any) -> None:
    """Add the parser of the command."""
    add = new_parser(
        commands,
        "publish",
        run,
        help="copy a version of a model to a folder of models, after it was tried",
        description="Tries a version of a model, and copies it to a folder of models.",
        epilog=_EXAMPLE,
    ).add_argument
    add("models", metavar="MODELS", help="the folder of the models")
    add("name", metavar="NAME", help="the model, which has a model.toml there")
    add("path", metavar="PATH", help='a folder, a file, or a URL (needs the extra "remote")')
    add("--version", type=int, metavar="N", help="the number, which must be new (the next one)")
    add("--timeout", type=float, help="seconds until it must be loaded (no limit)")


def run(
    models: str,
    name: str,
    path: str,
    *,
    version: int | None = None,
    timeout: float | None = None,
) -> int:
    """Publish a version."""
    from ..hub._versions.publishing import publish

    if version is not None:
        options.count("version", version, least=0)
    look_in_working_folder()
    try:
        number = publish(Path(models), name, path, version, options.timeout("timeout", timeout))
    except UnknownModel as error:
        raise CommandError(str(error)) from None
    except ModelLoadError as error:
        if error.__cause__ is not None:
            print(error.__cause__, file=sys.stderr)
        raise
    say(f"{name}@{number} is in {models}")
    print(number)
    return 0
