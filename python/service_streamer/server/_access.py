"""Access: which requests are allowed, by one rule for all protocols."""

from __future__ import annotations

import collections
import hashlib
import hmac
import logging
import os
import time

from .._base.messages import wrong_option
from ._errors import NotAllowed, NotAuthenticated, TooManyTries

RULES = ("read-only", "token", "open")
"""which requests may load and unload models: none, those with a token for it, all"""

TRIES = 10  # wrong tokens of a client in `WINDOW`
WINDOW = 60.0  # s
SHARED = ("", "unix")  # the address of all clients of a Unix socket: their tries are not counted
CLIENTS = 4096  # most clients whose wrong tokens are counted
LOOK = 1.0  # s between two looks at a file

FREE = frozenset({"live", "ready", "ServerLive", "ServerReady", "Check"})
"""routes of HTTP and methods of gRPC that need no token, for probes"""
CONTROL = frozenset({"load", "unload", "RepositoryModelLoad", "RepositoryModelUnload", "control"})
"""routes and methods that change something"""

_logger = logging.getLogger("service_streamer")


class TokenFile:
    """The tokens in a file, one in each line. It is read again when it changes.

    If it cannot be read then, or is empty, its last tokens go on to count.

    Raises:
        ValueError: it cannot be read, or has no token.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._looked = time.monotonic()
        try:
            self._read()
        except (OSError, ValueError) as error:
            raise wrong_option(f"the file of tokens {self._path} {_why(error)}") from None

    def has(self, token: str) -> bool:
        """Return True if a token is in the file. It takes equally long for all tokens."""
        now = time.monotonic()
        if now - self._looked > LOOK:
            self._looked = now
            self._look()
        digest = _digest(token)
        return sum([hmac.compare_digest(digest, each) for each in self._digests]) > 0

    def _look(self) -> None:
        try:
            if self._stamp != _stamp(self._path):
                self._read()
                about = {"path": self._path, "tokens": len(self._digests)}
                _logger.info("%s was read again: %d tokens", *about.values(), extra=about)
        except (OSError, ValueError) as error:
            about = {"path": self._path, "error": _why(error)}
            _logger.error("%s %s: its last tokens go on to count", *about.values(), extra=about)

    def _read(self) -> None:
        self._stamp = _stamp(self._path)
        with open(self._path, encoding="utf-8") as file:
            tokens = [line.strip() for line in file]
        digests = [_digest(each) for each in tokens if each and not each.startswith("#")]
        if not digests:
            raise ValueError("is empty")
        self._digests = digests


class Access:
    """Decides which requests are allowed. The event loop and the threads of a monitor may call it.

    Args:
        repository: one of `RULES`. None: "token" if there are tokens for it, else "read-only".
        infer: the tokens with which models may be asked. None: every client may.
        control: those with which models may be loaded and unloaded, and asked, too.

    Raises:
        ValueError: the arguments contradict each other.
    """

    def __init__(
        self,
        repository: str | None = None,
        infer: TokenFile | None = None,
        control: TokenFile | None = None,
    ) -> None:
        if repository is None:
            repository = "read-only" if control is None else "token"
        if repository not in RULES:
            raise wrong_option(f"repository must be {', '.join(RULES)}, not {repository!r}")
        if (repository == "token") != (control is not None):
            raise wrong_option(
                f"repository {repository!r} "
                + ("needs a file of control tokens" if control is None else "has no control tokens")
            )
        self.repository = repository
        self._infer = infer
        self._control = control
        self._wrong: collections.OrderedDict[str, list[float]] = collections.OrderedDict()
        """the times of the wrong tokens of a client"""

    @property
    def needs_tokens(self) -> bool:
        """True if all requests but those of probes need a token."""
        return self._infer is not None

    def check(self, what: str, authorization: str | None, client: str) -> None:
        """Check a request before its body is read.

        Args:
            what: the route of HTTP or the method of gRPC.
            authorization: the header. None: there is none.
            client: the address.

        Raises:
            NotAllowed, NotAuthenticated, TooManyTries: it is not allowed.
        """
        if what in FREE:
            return
        accepted = [each for each in (self._infer, self._control) if each is not None]
        if what in CONTROL:
            if self.repository == "read-only":
                raise NotAllowed("the repository is read-only: start the server with --repository")
            if self.repository == "token":
                accepted = accepted[-1:]
            elif self._infer is None:
                return
        elif self._infer is None:
            return
        self._check_token(accepted, authorization, client)

    def _check_token(
        self, accepted: list[TokenFile], authorization: str | None, client: str
    ) -> None:
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise NotAuthenticated("the request needs the header Authorization: Bearer TOKEN")
        if sum([each.has(token.strip()) for each in accepted]):
            return  # many clients may share the address of one that sends wrong tokens
        now = time.monotonic()
        wrong = [at for at in self._wrong.get(client, ()) if now - at < WINDOW]
        if len(wrong) >= TRIES:
            raise TooManyTries(WINDOW - (now - wrong[0]))
        if client not in SHARED:
            self._wrong[client] = [*wrong, now]
            self._wrong.move_to_end(client)
            if len(self._wrong) > CLIENTS:
                self._wrong.popitem(last=False)
        raise NotAuthenticated("the token is wrong, or not for this")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _stamp(path: str) -> tuple[int, ...]:
    found = os.stat(path)
    return found.st_mtime_ns, found.st_ino, found.st_size


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror}"
    return "is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
