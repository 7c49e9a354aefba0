"""Descriptions of redis-py's errors: the cause, the remedy, and whether they are transient."""

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


class UnsupportedServer(Exception):
    """The server cannot be used; the message says why."""


def explain_error(error: BaseException, moves: bool) -> tuple[str, bool] | None:
    """Return a description, to follow "the Redis broker …", and True if the error is transient.

    None: the error concerns only one command.

    Args:
        error: an exception of redis-py or of the handshake.
        moves: True if a sentinel or a cluster node names the server.
    """
    text = str(error)
    if isinstance(error, AuthenticationError | AuthenticationWrongNumberOfArgsError):
        if "required" in text:
            return "requires a password: use redis://user:password@host:port", False
        return f"rejects the user or the password: {text}", False
    if isinstance(error, NoPermissionError | AuthorizationError):
        return f"denies a permission that is needed: {text}", False
    if isinstance(error, ReadOnlyError):
        return f"is a read-only replica: {text}", moves
    if isinstance(error, OutOfMemoryError):
        return f"is out of memory (maxmemory without eviction): {text}", False
    if isinstance(error, AskError):  # and MovedError
        if moves:
            return f"is moving keys to another node: {text}", True
        return "is a node of a cluster: use redis+cluster://host:port", False
    if isinstance(error, BusyLoadingError):
        return f"is starting: {text}", True
    if isinstance(error, ClusterDownError | TryAgainError):
        return f"has cluster nodes or keys that are unavailable: {text}", True
    if isinstance(error, UnsupportedServer):
        return text, False
    if isinstance(error, InvalidResponse):
        return f"does not answer like a Redis server: {text}", False
    if (why := _certificate_error(error)) is not None:
        return f"has a certificate that is not trusted: {why}", False
    if isinstance(error, TimeoutError):
        return f"does not answer: {text}", True
    if isinstance(error, ResponseError) and text.startswith("NOREPLICAS"):
        return f"has too few replicas at the moment: {text}", True
    if isinstance(error, ResponseError) and text.startswith("BUSY "):
        return f"is busy running a script: {text}", True
    if isinstance(error, ResponseError):
        return None
    if isinstance(error, RedisError | OSError | LookupError):
        return f"is unreachable: {text}", True
    return f"cannot be used: {type(error).__name__}: {text}", False


def _certificate_error(error: BaseException | None) -> str | None:
    """Return why the server's certificate is not trusted; None: the error is another one."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return str(error.verify_message)
        error = error.__cause__ or error.__context__
    return None
