"""The entry of the command line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .. import __version__
from .._base.errors import StreamerError
from .._base.messages import describe, is_missing_package, is_wrong_argument
from . import bench, canary, publish, ray_serve, redis_worker, serve, top, trace, tune
from .logs import say
from .options import CommandError

COMMANDS = (serve, redis_worker, ray_serve, top, publish, canary, bench, tune, trace)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit code: 0 after a normal end, 1 if the streamer or its model has failed, 2 if an
        argument is wrong, a package is missing or an address is unusable, 130 after Ctrl-C.
        `tune` has 3, too.
    """
    options = vars(_parser().parse_args(arguments))
    del options["command"]
    run = options.pop("run")
    try:
        return int(run(**options))
    except CommandError as error:
        say(str(error), error=True)
        return 2
    except ImportError as error:
        missing = is_missing_package(error)
        say(str(error) if missing else describe(error), error=True)
        return 2 if missing else 1
    except KeyboardInterrupt:
        return 130  # as a shell says of SIGINT
    except BrokenPipeError:  # what reads the output has ended, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (StreamerError, TypeError, ValueError, OSError, AttributeError) as error:
        say(describe(error), error=True)
        return 2 if is_wrong_argument(error) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="service-streamer", description="Batching for deep-learning models."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_to(commands)
    return parser
