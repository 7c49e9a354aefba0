"""Interpreter exit and fork: the hooks that close streamers and rebuild them in a child.

At exit a running batch may finish, but queued requests do not start. The interpreter waits at most
`EXIT_WAIT` seconds; then all remaining requests end with `StreamerClosed`.

A forked child has none of its parent's threads and must not use the parent's locks, so each
streamer gets a new engine there. A ThreadedStreamer starts its own worker thread at the first
request of the child. A Streamer becomes a client of the parent's engine.

The hooks are registered when the first streamer is created. Importing the module has no effect.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from .. import _core
from .._base import cuda
from .._base.messages import describe
from .._waiting import callbacks, greenlets, imports, tasks

EXIT_WAIT = 4.0

_logger = logging.getLogger("service_streamer")


class Service(Protocol):
    """An object that is closed at exit: a `Backend`, or an object that uses one.

    It may have a method `give_up`, which ends the requests that wait for an absent process. The
    exit hook calls it before the interpreter joins its threads.
    """

    @property
    def engine(self) -> Any: ...

    def close(self, drain: bool) -> None: ...
    def join(self, timeout: float | None) -> bool: ...


class Forked(Protocol):
    """An object that is rebuilt in a forked child: a streamer."""

    def _reset_after_fork(self) -> None: ...


_streamers: weakref.WeakSet[Forked] = weakref.WeakSet()
# Separate from _streamers: a backend outlives its streamer until its requests have ended.
# The value is the creating process: a child forked without Python's hooks inherits the entries.
_backends: weakref.WeakKeyDictionary[Service, int] = weakref.WeakKeyDictionary()
_not_hooked: list[None] = [None]  # pop() is atomic
_after_first_request: list[Callable[[], object]] = []
_before_close_all: list[Callable[[], object]] = []
_after_close_all: list[Callable[[], object]] = []
_before_worker_ends: list[Callable[[], object]] = []
_on_drop: list[Callable[[object], object]] = []


def watch(streamer: Forked) -> None:
    """Register a streamer to be rebuilt in forked children."""
    _hook()
    _streamers.add(streamer)


def watch_backend(backend: Service) -> None:
    """Register a backend to be closed at exit."""
    _hook()
    _backends[backend] = os.getpid()


def after_first_request(callback: Callable[[], object]) -> None:
    """Register a function that each engine calls with its first request. It must not raise.

    Example:
        >>> begun = []
        >>> extend.after_first_request(lambda: begun.append(os.getpid()))
        >>> outputs = ThreadedStreamer(sorted, batch_size=64).predict([1])
        >>> os.getpid() in begun
        True
    """
    _after_first_request.append(callback)


def before_close_all(callback: Callable[[], object]) -> None:
    """Register a function that is called at exit, before the backends are closed."""
    _before_close_all.append(callback)


def after_close_all(callback: Callable[[], object]) -> None:
    """Register a function that is called at exit, when all streamers are closed.

    Example:
        >>> extend.after_close_all(lambda: None)  # write the last numbers
    """
    _after_close_all.append(callback)


def before_worker_ends(callback: Callable[[], object], *, last: bool = False) -> None:
    """Register a function that a worker process calls before it ends. It must not raise.

    Args:
        callback: the function.
        last: call it after the others.
    """
    _before_worker_ends.insert(len(_before_worker_ends) if last else 0, callback)


def on_drop(callback: Callable[[object], object]) -> None:
    """Register a function that is called with each engine that is closed without a drain."""
    _on_drop.append(callback)


def begin_requests() -> None:
    """Call the functions of `after_first_request`."""
    for callback in _after_first_request:
        callback()


def end_worker() -> None:
    """Close what the model has opened, then call the functions of `before_worker_ends`."""
    close_all()
    for callback in _before_worker_ends:
        callback()


def drop(engine: object) -> None:
    """Call the functions of `on_drop`."""
    for callback in _on_drop:
        callback(engine)


def close_all() -> None:
    """Close all backends. Running batches get `EXIT_WAIT` seconds to finish. Runs at exit."""
    for callback in _before_close_all:
        with _logged():
            callback()
    close_some(object)
    for callback in _after_close_all:
        with _logged():
            callback()
    _core.leave_native_threads()


def close_some(kind: type) -> None:
    """Close the backends of a class, as `close_all` does."""
    deadline = time.monotonic() + EXIT_WAIT
    live = [backend for backend in _own_backends() if isinstance(backend, kind)]
    for backend in live:
        with _logged():
            backend.close(False)
    for backend in live:
        with _logged():
            if not backend.engine.join(max(0.0, deadline - time.monotonic())):
                backend.engine.abort()
    for backend in live:
        with _logged():
            backend.join(max(0.0, deadline - time.monotonic()))


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    """Go on after an exception: what others have written must not keep the rest open."""
    try:
        yield
    except Exception as error:
        _logger.exception("a streamer could not be closed", extra={"error": describe(error)})


def is_own(backend: Service) -> bool:
    """Return True if this process created the backend. A child must not use its parent's."""
    return _backends.get(backend) == os.getpid()


def _own_backends() -> list[Service]:
    return [backend for backend in list(_backends) if is_own(backend)]


def _give_up() -> None:
    for backend in _own_backends():
        if (give_up := getattr(backend, "give_up", None)) is not None:
            give_up()


def _after_fork_in_child() -> None:
    imports.forget_begun()
    callbacks.reset_after_fork()
    tasks.reset_after_fork()
    greenlets.reset_after_fork()
    _backends.clear()
    for streamer in list(_streamers):
        streamer._reset_after_fork()


def _hook() -> None:
    if _not_hooked:
        try:
            _not_hooked.pop()
        except IndexError:  # another thread registers them
            return
        atexit.register(close_all)
        with contextlib.suppress(RuntimeError, AttributeError):  # the interpreter is exiting
            threading._register_atexit(_give_up)  # type: ignore[attr-defined]
        os.register_at_fork(before=cuda.before_fork, after_in_child=_after_fork_in_child)
