"""The first commands on each new raw connection: clock, version, role, limits."""

from __future__ import annotations

import re
import time
from typing import Any

from .clock import Clock
from .failures import UnsupportedServer
from .raw_connections import execute_if_allowed, execute_raw

OLDEST = (6, 2)


def handshake(raw: Any, clock: Clock, moves: bool) -> None:
    """Connect, set the clock, and check that the server can be used.

    Args:
        raw: the raw connection.
        clock: the estimate of the broker's clock.
        moves: True if a sentinel or a cluster node named the server.

    Raises:
        UnsupportedServer: the version of the server is too old.
        LookupError: the server is not the master at the moment.
        redis.exceptions.RedisError: the connection or a command failed.
    """
    raw.connect()
    begin = time.monotonic()
    now = execute_raw(raw, ("TIME",))
    clock.set(begin, time.monotonic(), now)
    info = execute_if_allowed(raw, ("INFO", "server")) or b""
    found = re.search(rb"^redis_version:(\d+)\.(\d+)", info, re.MULTILINE)
    if found and (int(found[1]), int(found[2])) < OLDEST:
        raise UnsupportedServer(
            f"is version {found[1].decode()}.{found[2].decode()}; 6.2 or later is required"
        )
    if moves and (execute_if_allowed(raw, ("ROLE",)) or [b"master"])[0] != b"master":
        raise LookupError("the server is not the master at the moment")


def message_limit(raw: Any) -> int | None:
    """Return the largest size of a value in bytes; None: the server does not tell it."""
    limit = execute_if_allowed(raw, ("CONFIG", "GET", "proto-max-bulk-len"))
    return int(limit[1]) if limit else None
