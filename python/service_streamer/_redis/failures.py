"""What redis-py raises, in words that name the cause and what to do."""

from __future__ import annotations

import ssl

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    InvalidResponse,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)


class Unfit(Exception):
    """The server will never do; the message says why."""


def words(error: BaseException, moves: bool) -> tuple[str, bool] | None:
    """Say what went wrong, to follow "the Redis broker …", and whether it may pass by itself.

    None: it is about one command only.

    Args:
        error: what was raised.
        moves: whether the broker is found by a sentinel or a cluster.
    """
    text = str(error)
    if isinstance(error, AuthenticationError | AuthenticationWrongNumberOfArgsError):
        if "required" in text:
            return "asks for a password: redis://user:password@host:port", False
        return f"refuses the user or the password: {text}", False
    if isinstance(error, NoPermissionError | AuthorizationError):
        return f"does not permit its user what is needed: {text}", False
    if isinstance(error, ReadOnlyError):
        return f"is a replica that is only to be read: {text}", moves
    if isinstance(error, OutOfMemoryError):
        return f"is out of memory (maxmemory, with a policy of no eviction): {text}", False
    if isinstance(error, AskError):  # and MovedError
        if moves:
            return f"is moving keys to another node: {text}", True
        return "is a node of a cluster: use redis+cluster://host:port", False
    if isinstance(error, BusyLoadingError):
        return f"is starting: {text}", True
    if isinstance(error, ClusterDownError | TryAgainError):
        return f"is not complete: {text}", True
    if isinstance(error, Unfit):
        return text, False
    if isinstance(error, InvalidResponse):
        return f"does not answer as a Redis server does: {text}", False
    if (why := _distrust(error)) is not None:
        return f"has a certificate that is not trusted: {why}", False
    if isinstance(error, TimeoutError):
        return f"does not answer: {text}", True
    if isinstance(error, ResponseError) and text.startswith("NOREPLICAS"):
        return f"has too few replicas now: {text}", True
    if isinstance(error, ResponseError) and text.startswith("BUSY "):
        return f"is busy with a script: {text}", True
    if isinstance(error, ResponseError):
        return None
    if isinstance(error, RedisError | OSError | LookupError):
        return f"is unreachable: {text}", True
    return f"cannot be used: {type(error).__name__}: {text}", False


def _distrust(error: BaseException | None) -> str | None:
    """Return what is wrong with the server's certificate; None: it is about something else."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return str(error.verify_message)
        error = error.__cause__ or error.__context__
    return None
