"""What is asked of a server first, on each new link to it."""

from __future__ import annotations

import re
import time
from typing import Any

from .clock import Clock
from .failures import Unfit
from .links import ask_allowed, ask_link

OLDEST = (6, 2)


def greet(link: Any, clock: Clock, moves: bool) -> None:
    """Connect, set the clock, and look whether the server will do.

    Args:
        link: redis-py's connection.
        clock: the estimate of the broker's clock.
        moves: whether the server was found by a sentinel or a cluster.

    Raises:
        Unfit: it never will.
        LookupError: it is not the master now.
        redis.exceptions.RedisError: it cannot be connected to, or asked.
    """
    link.connect()
    begin = time.monotonic()
    now = ask_link(link, ("TIME",))
    clock.set(begin, time.monotonic(), now)
    info = ask_allowed(link, ("INFO", "server")) or b""
    found = re.search(rb"^redis_version:(\d+)\.(\d+)", info, re.MULTILINE)
    if found and (int(found[1]), int(found[2])) < OLDEST:
        raise Unfit(f"is version {found[1].decode()}.{found[2].decode()}: 6.2 is needed")
    if moves and (ask_allowed(link, ("ROLE",)) or [b"master"])[0] != b"master":
        raise LookupError("the server that was found is not the master now")


def message_limit(link: Any) -> int | None:
    """Return the bytes that a value may have; None: the server does not say."""
    limit = ask_allowed(link, ("CONFIG", "GET", "proto-max-bulk-len"))
    return int(limit[1]) if limit else None
