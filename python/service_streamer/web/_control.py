"""Steering: which requests may change settings, and the changes."""

from __future__ import annotations

import collections
import hmac
import json
import logging
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, NamedTuple

from .._base.errors import AlreadyRecording, StreamerClosed, StreamerError
from .._base.messages import describe, text_of, wrong_option
from .._statistics.stats import StreamerStats
from ._targets import Target, Task, Wait

_logger = logging.getLogger("service_streamer.web")

Control = str | Callable[[Any], bool | Awaitable[bool]]
"""a token, or a function of the request that returns True if it may change settings"""

MOST_BYTES = 4096  # of the body of a request
LONGEST_TRACE = 60.0  # s
MOST_WORKERS = 256
_SETTINGS = {"resize": "workers"}  # the field of StreamerStats, where it has another name


class Refused(Exception):
    """A request that changes nothing.

    Attributes:
        status: of the HTTP response.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class TokenCheck(NamedTuple):
    """Tokens that allow changes, in the place of a `Control`."""

    check: Callable[[str | None, str], None]
    """gets the header Authorization and the address of the client; raises `Refused`"""
    needs_token: bool
    """False: it lets all pass"""


class Event(NamedTuple):
    """A change, as the event stream tells it."""

    id: str
    time: float
    streamer: str
    text: str
    settings: Mapping[str, Any]


class Events:
    """The last changes by this process. Any thread may call the methods."""

    def __init__(self) -> None:
        self._kept: collections.deque[Event] = collections.deque(maxlen=50)

    def add(self, streamer: str, text: str, settings: Mapping[str, Any] = {}) -> None:
        """Add a change, and log it."""
        about = {"streamer": streamer, "change": text}
        _logger.info("%s: %s", streamer, text, extra=about)
        self._kept.append(Event(uuid.uuid4().hex, time.time(), streamer, text, settings))

    def all(self) -> list[dict[str, Any]]:
        """Return all changes as JSON values."""
        return [{**each._asdict(), "settings": dict(each.settings)} for each in tuple(self._kept)]


class Steering:
    """Checks requests and carries out changes.

    Args:
        targets: by name.
        control: the protection; None: every request is refused.
        events: where changes are told.

    Raises:
        TypeError, ValueError: `control` is not a token or a callable.
    """

    def __init__(
        self,
        targets: Mapping[str, Target],
        control: Control | TokenCheck | None,
        events: Events,
    ) -> None:
        known = control is None or isinstance(control, str | TokenCheck) or callable(control)
        if not known:
            raise wrong_option(
                f"control must be a str, a callable or None, not {control!r}", TypeError
            )
        if isinstance(control, str) and not (control.strip() and control.isascii()):
            raise wrong_option("control must be a token of ASCII characters, not empty")
        self._targets = targets
        self._control = control
        self._events = events
        self._running: set[tuple[str, str, str]] = set()
        """the tasks: the name of the target, that of the change, and its value"""
        self._lock = threading.Lock()

    @property
    def kind(self) -> str | None:
        """How requests are allowed: "token", "callable", or None."""
        if self._control is None:
            return None
        if isinstance(self._control, TokenCheck):
            return "token" if self._control.needs_token else "callable"
        return "token" if isinstance(self._control, str) else "callable"

    @property
    def function(self) -> Callable[[Any], bool | Awaitable[bool]] | None:
        """The callable that allows requests. None: there is none, so `check` is enough."""
        return None if isinstance(self._control, str | TokenCheck) else self._control

    def check(self, header: Callable[[str], str | None], client: str = "") -> None:
        """Check all that the headers of a request tell.

        A page of another site cannot pass: it cannot send JSON, or an Authorization header, without
        being asked for first, and browsers tell where a request comes from.

        Args:
            header: returns the value of a header of the request, or None. Ignores case.
            client: the address.

        Raises:
            Refused: it may not change settings.
        """
        if self._control is None:
            raise Refused(403, "settings cannot be changed here: control= is not set")
        media_type = (header("Content-Type") or "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise Refused(415, f"the content type must be application/json, not {media_type!r}")
        authorization = header("Authorization")
        site, origin = header("Sec-Fetch-Site"), header("Origin")
        if site is not None:
            same = site == "same-origin"
        elif origin is not None:
            same = origin.partition("://")[2] == header("Host")
        else:  # not from a browser, or from one that does not tell
            same = authorization is not None or isinstance(self._control, str | TokenCheck)
        if not same:
            raise Refused(403, "a request of another origin may not change settings")
        if isinstance(self._control, TokenCheck):
            self._control.check(authorization, client)
        elif isinstance(self._control, str):
            scheme, _, token = (authorization or "").partition(" ")
            equal = hmac.compare_digest(token.strip().encode(), self._control.strip().encode())
            if scheme.lower() != "bearer" or not equal:
                raise Refused(401, "the token is missing or wrong")

    def trace(self, name: str, seconds: str, wait: Wait) -> bytes:
        """Record a target for some seconds and return a trace. Blocks meanwhile.

        Args:
            name: of the target.
            seconds: as the request has it.
            wait: as for `Target.trace`.

        Raises:
            Refused: nothing was recorded. The message says why.
        """
        target = self._targets.get(name)
        if target is None:
            raise Refused(404, f"there is no streamer {name!r}")
        try:
            length = float(seconds)
            if not length <= LONGEST_TRACE:
                raise ValueError(f"seconds must be at most {LONGEST_TRACE:g}, not {seconds}")
            return target.trace(length, wait)
        except ValueError as error:
            raise Refused(422, str(error)) from error
        except (NotImplementedError, StreamerClosed, AlreadyRecording) as error:
            raise Refused(409, str(error)) from error
        except StreamerError as error:
            raise Refused(503, str(error)) from error

    def refused(self, name: str, why: Refused) -> None:
        """Log a request that was refused."""
        shown = name if name in self._targets else repr(name)
        about = {"streamer": shown, "error": str(why)}
        _logger.warning("%s: a change was refused: %s", shown, why, extra=about)

    def apply(
        self, name: str, body: bytes, stats: StreamerStats | None
    ) -> tuple[dict[str, Any], bool]:
        """Carry out the change in a body. May block. A task goes on in a thread.

        Args:
            name: of the target.
            body: a JSON object with any of the changes that the target knows.
            stats: before the change; None: not known.

        Returns:
            The settings that were given, and "started" for a task; and whether there is a task.

        Raises:
            Refused: nothing has changed. The message says why.
        """
        target = self._targets.get(name)
        if target is None:
            raise Refused(404, f"there is no streamer {name!r}")
        wanted = _parse(body, target.changes)
        for change, value in wanted.items():
            if (name, change, repr(value)) in self._running:
                raise Refused(409, f"{name}: {change} goes on already")
        if why := target.closing():
            raise Refused(409, why)
        try:
            task = target.change(wanted)
        except (ValueError, TypeError) as error:
            raise Refused(422, str(error)) from error
        except (NotImplementedError, RuntimeError, StreamerClosed) as error:
            raise Refused(409, str(error)) from error
        except StreamerError as error:
            raise Refused(503, str(error)) from error
        done = dict(wanted)
        given = {n: each for n, each in wanted.items() if task is None or n != task.change}
        if given:
            settings = {_SETTINGS.get(n, n): value for n, value in given.items()}
            before = {n: getattr(stats, n, None) for n in settings}
            texts = [_describe(n, before[n], value) for n, value in settings.items()]
            self._events.add(name, ", ".join(texts), settings)
        if task is not None:
            key = (name, task.change, repr(wanted[task.change]))
            done[task.change] = self._start(key, task)
        return done, task is not None

    def _start(self, key: tuple[str, str, str], task: Task) -> str:
        name = key[0]
        with self._lock:
            if key in self._running:
                return "started already"
            self._running.add(key)

        def end(text: str) -> None:
            self._running.discard(key)
            self._events.add(name, text)

        def fail(error: Exception) -> None:
            why = (text_of(error) or describe(error)).partition("\n")[0]
            end(f"{task.failed}: {why}")

        def run() -> None:
            try:
                task.run()
            except Exception as error:
                fail(error)
            else:
                end(task.done)
            finally:
                self._running.discard(key)

        self._events.add(name, task.begun)
        try:
            threading.Thread(target=run, name="service-streamer-change", daemon=True).start()
        except RuntimeError as error:  # too many threads
            fail(error)
        return "started"


def _describe(name: str, before: Any, after: Any) -> str:
    return f"{name} {after}" if before is None else f"{name} {before} → {after}"


def _parse(body: bytes, known: Collection[str]) -> dict[str, Any]:
    if len(body) > MOST_BYTES:
        raise Refused(413, f"the body must not be longer than {MOST_BYTES} bytes")
    try:
        wanted = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(422, f"the body is not JSON: {error}") from error
    if not isinstance(wanted, dict) or not wanted:
        raise Refused(422, f"the body must be an object with any of {', '.join(known)}")
    unknown = sorted(wanted.keys() - set(known))
    if unknown:
        raise Refused(422, f"unknown: {unknown[0]!r}; known: {', '.join(known)}")
    workers = wanted.get("resize")
    if isinstance(workers, int) and workers > MOST_WORKERS:
        raise Refused(422, f"resize must not be larger than {MOST_WORKERS}, not {workers}")
    return wanted
