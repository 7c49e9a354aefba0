"""The command ``top``: its arguments and its loop."""

from __future__ import annotations

import dataclasses
import json
import logging
import signal
import time
from typing import TYPE_CHECKING, Any

from ..._base.errors import StreamerError
from ..._base.messages import missing_package
from ..options import CommandError, in_seconds, new_parser
from .sources import Source, open_source

if TYPE_CHECKING:
    from .screen import Screen

_EXAMPLE = """
The rates and percentiles are those of the last 10 seconds. Ctrl-C ends it.

examples:
  service-streamer top /run/sentiment.sock
  service-streamer top redis://broker:6379 --prefix sentiment
  service-streamer top http://127.0.0.1:9000/
  service-streamer top /run/sentiment.sock --once --json
"""


def add_to(commands: Any) -> None:
    """Add the parser of the command."""
    add = new_parser(
        commands,
        "top",
        run,
        help="show the live numbers of a streamer or a hub",
        description="Shows the live numbers of a Streamer, of a queue at a Redis broker (host:port "
        "or a URL), or of the models of a hub (the URL of its page).",
        epilog=_EXAMPLE,
    ).add_argument
    add("place", metavar="ADDRESS|BROKER|URL", help="address of a Streamer, a broker, or a page")
    add("--prefix", default="", help="name of the queue at the broker")
    add("--shards", type=int, default=1, metavar="N", help="parts of the queue (1)")
    add("--interval", type=in_seconds, default=1.0, help="seconds between two readings (1)")
    add("--once", action="store_true", default=False, help="print the numbers once and end")
    add("--json", action="store_true", default=False, help="with --once: print them as JSON")


def run(place: str, *, prefix: str, shards: int, interval: float, once: bool, json: bool) -> int:
    """Show the numbers until Ctrl-C."""
    if not interval > 0:
        raise CommandError(f"--interval must be more than 0 seconds, not {interval}")
    if json and not once:
        raise CommandError("--json needs --once")
    screen = None if json else _make_screen()
    logging.getLogger("service_streamer").addHandler(logging.NullHandler())  # nothing on the screen
    source = open_source(place, prefix, shards)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends as after Ctrl-C
    try:
        return _show(source, screen, interval, once)
    except KeyboardInterrupt:
        return 0
    finally:
        source.close()


def _show(source: Source, screen: Screen | None, interval: float, once: bool) -> int:
    try:
        stats = source.read()
    except StreamerError as error:
        raise CommandError(str(error)) from None
    if screen is None:
        print(json.dumps(dataclasses.asdict(stats), indent=2))
        return 0
    if once:
        screen.print(source.name, stats)
        return 0
    with screen:
        due = time.monotonic()
        while True:
            screen.update(source.name, stats)
            due = max(due + interval, time.monotonic())
            time.sleep(due - time.monotonic() if due > time.monotonic() else 0)
            try:
                stats = source.read()
            except StreamerError as error:
                screen.unreachable(str(error))
    return 0


def _make_screen() -> Screen:
    try:
        from .screen import Screen
    except ImportError as error:
        raise CommandError(
            f"{missing_package(error, 'top')}\nor use --once --json, which needs no package"
        ) from None
    return Screen()
