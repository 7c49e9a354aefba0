"""Operating-system threads and locks, also if gevent has patched the standard library."""

from __future__ import annotations

import contextlib
import contextvars
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from .._base.errors import StreamerError
from .._base.messages import see
from .timeouts import countdown


def native_thread_id() -> int:
    """Return the id of the operating-system thread, also in a greenlet."""
    return int(original("_thread", "get_ident")())


class NativeThread:
    """A daemon thread of the operating system, also if ``threading.Thread`` is a greenlet.

    A Ctrl-C may interrupt `start` before or after the thread exists. So `start` may be called
    again; if two threads exist then, only the first one runs the target.
    """

    def __init__(self, target: Callable[[], object], name: str) -> None:
        self._target = target
        self._name = name
        self._claimed = original("_thread", "allocate_lock")()  # acquired once, to run or by join
        self._ended = original("_thread", "allocate_lock")()
        self._ended.acquire()
        self.ident: int | None = None

    def start(self) -> None:
        """Start the thread unless it has begun or was joined. Returns after it has begun.

        Raises:
            RuntimeError: no thread can be created, or the interpreter is shutting down.
            StreamerError: eventlet has patched the threads of this process.
        """
        if self.has_begun:
            return
        refuse_eventlet()
        begun = original("_thread", "allocate_lock")()
        begun.acquire()
        if is_patched("threading"):
            original("_thread", "start_new_thread")(self._run_unmanaged, (begun,))
        else:
            thread = threading.Thread(target=self._run, args=(begun,), name=self._name, daemon=True)
            # In an empty context: instrumentation of threads may pass that of this request on.
            contextvars.Context().run(thread.start)
        begun.acquire()

    def join(self, timeout: float | None = None) -> bool:
        """Block until the thread has ended; return False on timeout. A hub is blocked too.

        If the thread has not begun, it never will.
        """
        if self._claimed.acquire(blocking=False):
            self._end()
        if not self._ended.acquire(timeout=-1 if timeout is None else timeout):
            return False
        self._ended.release()
        return True

    @property
    def has_begun(self) -> bool:
        """True once `start` has returned, or `join`."""
        return bool(self._claimed.locked())

    def is_current(self) -> bool:
        """Return True in this thread."""
        return self.ident == native_thread_id()

    def _run(self, begun: Any) -> None:
        first = self._claimed.acquire(blocking=False)
        begun.release()
        if not first:
            return
        self.ident = native_thread_id()
        try:
            self._target()
        finally:
            self.ident = None  # another thread may get the same id
            self._end()

    def _end(self) -> None:
        del self._target  # it may keep the object that started this thread alive
        self._ended.release()

    def _run_unmanaged(self, begun: Any) -> None:
        # the same handling of exceptions as in threading.Thread
        try:
            self._run(begun)
        except SystemExit:
            pass
        except BaseException:
            sys.excepthook(*sys.exc_info())


def refuse_eventlet() -> None:
    """Raise `StreamerError` if eventlet has patched the threads of this process.

    Its locks are not for other threads, and the one that waits for the model stops all others.
    """
    patched = getattr(sys.modules.get("eventlet.patcher"), "is_monkey_patched", None)
    if patched is not None and patched("thread"):
        text = (
            "a streamer cannot be used in a process whose threads are patched by eventlet, where "
            "it would wait for ever: use gevent (gunicorn -k gevent) or threads "
            "(gunicorn -k gthread)"
        )
        raise StreamerError(see(text, "a-process-patched-by-eventlet"))


def is_patched(module: str) -> bool:
    """Return True if gevent has patched a module of the standard library."""
    is_module_patched = _gevent_monkey("is_module_patched")
    return is_module_patched is not None and bool(is_module_patched(module))


def original(module: str, name: str) -> Any:
    """Return the unpatched version of an object of the standard library."""
    get_original = _gevent_monkey("get_original")
    if get_original is not None:
        return get_original(module, name)
    return getattr(sys.modules[module], name)


def loaded(module: str) -> Any:
    """Return a module of another library, or None if it is not loaded.

    Not by `get`: without a GIL, that of Python 3.13 takes the lock of the dict. If callers wait for
    it at a fork, or when the interpreter ends, the child or the main thread may wait for ever.
    """
    if module not in sys.modules:
        return None
    try:
        return sys.modules[module]
    except KeyError:  # an import that ends takes the module out for a moment
        return None


def _gevent_monkey(name: str) -> Any:
    # While another thread imports gevent.monkey the name is missing, and nothing is patched yet.
    return getattr(loaded("gevent.monkey"), name, None)


class ThreadWait:
    """Blocks a thread until `wake`."""

    def __init__(self) -> None:
        self._lock = original("_thread", "allocate_lock")()
        self._lock.acquire()

    def wake(self) -> None:
        """End the wait. May be called again, and by any thread."""
        with contextlib.suppress(RuntimeError):
            self._lock.release()

    def wait(self, timeout: float | None) -> bool:
        """Wait; return False on timeout."""
        limit = -1 if timeout is None else max(0.0, timeout)
        return bool(self._lock.acquire(timeout=limit))

    def close(self) -> None:
        """Do nothing."""


class Condition:
    """A condition variable whose waiters wait for a predicate.

    The notifying thread evaluates the predicates and wakes only threads whose predicate is true.
    So a predicate must be fast, must not acquire a lock that a notifying thread holds, and must
    not call `notify`. `notify` may be called by any thread, also in a signal handler.
    """

    def __init__(self) -> None:
        # reentrant, because a signal handler may call notify() while notify() runs
        self._lock = original("_thread", "RLock")()
        self._waiters: list[tuple[Callable[[], bool], Any]] = []

    def notify(self) -> None:
        """Wake the threads whose predicate is true."""
        with self._lock:
            if self._waiters:
                self._waiters = [each for each in self._waiters if not _wake_if_ready(*each)]

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """Block until the predicate is true; return False on timeout. A hub is blocked too."""
        left = countdown(timeout)
        while True:
            waiter = original("_thread", "allocate_lock")()
            waiter.acquire()
            entry = (predicate, waiter)
            with self._lock:
                self._waiters.append(entry)
                if predicate():
                    self._forget(entry)
                    return True
            limit = left()
            if not waiter.acquire(timeout=-1 if limit is None else limit):
                self._forget(entry)
                return predicate()

    def wait_with(self, waiter: Any, predicate: Callable[[], bool]) -> None:
        """Block until the predicate is true, by a waiter that may be woken without it."""
        entry = (predicate, waiter)
        try:
            while True:
                with self._lock:
                    if predicate():
                        return
                    if entry not in self._waiters:
                        self._waiters.append(entry)
                waiter.acquire()
        finally:
            self._forget(entry)

    @contextlib.contextmanager
    def woken(self, waiter: Any, predicate: Callable[[], bool]) -> Iterator[None]:
        """In the block, some thread calls ``waiter.release()`` once the predicate is true."""
        entry = (predicate, waiter)
        with self._lock:
            self._waiters.append(entry)
        self.notify()
        try:
            yield
        finally:
            self._forget(entry)

    def _forget(self, entry: tuple[Callable[[], bool], Any]) -> None:
        with self._lock:
            if entry in self._waiters:
                self._waiters.remove(entry)


def _wake_if_ready(predicate: Callable[[], bool], waiter: Any) -> bool:
    try:
        if not predicate():
            return False
    except Exception:
        pass  # wake the thread: its own call of the predicate raises the error
    with contextlib.suppress(RuntimeError):  # an interrupted notify() has already released it
        waiter.release()
    return True
