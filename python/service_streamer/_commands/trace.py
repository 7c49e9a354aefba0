"""The command ``trace``: records a streamer for some seconds."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import Any

from .._base import options
from .._base.errors import StreamerError
from .._processes.streamer import Streamer
from .logs import say
from .options import CommandError, in_seconds, new_parser

_EXAMPLE = """
Ctrl-C ends the recording early. https://ui.perfetto.dev shows the file.

example:
  service-streamer trace /run/sentiment.sock --seconds 5 -o trace.json.gz
"""


def add_to(commands: Any) -> None:
    """Add the parser of the command."""
    add = new_parser(
        commands,
        "trace",
        run,
        help="record a timeline of a streamer",
        description="Records what a Streamer does, and writes a trace for Perfetto or Chrome.",
        epilog=_EXAMPLE,
    ).add_argument
    add("address", metavar="ADDRESS", help="address of a Streamer")
    add("--seconds", type=in_seconds, default=5.0, help="length of the recording (5)")
    add("--max-events", type=int, default=500_000, help="most events to keep (500000)")
    add(
        *("-o", "--file"),
        default="trace.json.gz",
        metavar="FILE",
        help="compressed if the name ends with .gz (trace.json.gz)",
    )


def run(address: str, *, seconds: float, max_events: int, file: str) -> int:
    """Record until the time is over or Ctrl-C."""
    try:
        options.address(address)
        streamer = Streamer.connect(address)
        recorder = streamer.record(file, seconds=seconds, max_events=max_events)
    except ValueError as error:
        raise CommandError(str(error)) from None
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends as after Ctrl-C
    with streamer, contextlib.ExitStack() as stack:
        try:
            stack.enter_context(recorder)
        except (StreamerError, OSError) as error:
            raise CommandError(str(error)) from None
        with contextlib.suppress(KeyboardInterrupt):
            time.sleep(seconds)
    say(f"written: {file}")
    return 0
