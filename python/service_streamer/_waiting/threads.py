"""Real threads, also in a process where gevent has made threading.Thread a greenlet."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from typing import Any


def native_thread_id() -> int:
    """Identify the thread, not the greenlet that poses as one."""
    return int(original("_thread", "get_ident")())


class NativeThread:
    """A daemon thread, also where ``threading.Thread`` has become a greenlet.

    Ctrl-C may meet whoever starts it, and then nobody can say whether there is a thread. So a start
    may be tried again at any time, and its threads find out who is the first: that one runs.
    """

    def __init__(self, target: Callable[[], object], name: str) -> None:
        self._target = target
        self._name = name
        self._turn = original("_thread", "allocate_lock")()  # taken once, by who runs or joins
        self._ended = original("_thread", "allocate_lock")()
        self._ended.acquire()
        self.ident: int | None = None

    def start(self) -> None:
        """Start it, unless it has begun or was joined. When this returns it has begun.

        Raises:
            RuntimeError: the system has no thread left, or the interpreter is shutting down.
        """
        if self._turn.locked():
            return
        begun = original("_thread", "allocate_lock")()
        begun.acquire()
        if is_patched("threading"):
            original("_thread", "start_new_thread")(self._run_unmanaged, (begun,))
        else:
            threading.Thread(target=self._run, args=(begun,), name=self._name, daemon=True).start()
        begun.acquire()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for its end (blocking, also for a hub); False if time is over first.

        One that has not begun never will.
        """
        if self._turn.acquire(blocking=False):
            self._end()
        if not self._ended.acquire(timeout=-1 if timeout is None else timeout):
            return False
        self._ended.release()
        return True

    def is_current(self) -> bool:
        """Whether the caller is this thread."""
        return self.ident == native_thread_id()

    def _run(self, begun: Any) -> None:
        first = self._turn.acquire(blocking=False)
        begun.release()
        if not first:
            return
        self.ident = native_thread_id()
        try:
            self._target()
        finally:
            self.ident = None  # another thread may get the number
            self._end()

    def _end(self) -> None:
        del self._target  # it may refer to who started this
        self._ended.release()

    def _run_unmanaged(self, begun: Any) -> None:
        # threading does this for its own threads
        try:
            self._run(begun)
        except SystemExit:
            pass
        except BaseException:
            sys.excepthook(*sys.exc_info())


def is_patched(module: str) -> bool:
    """Tell whether gevent has replaced what is in a module of the standard library."""
    is_module_patched = _of_monkey("is_module_patched")
    return is_module_patched is not None and bool(is_module_patched(module))


def original(module: str, name: str) -> Any:
    """Return a function of the standard library as it was before monkey patching."""
    get_original = _of_monkey("get_original")
    if get_original is not None:
        return get_original(module, name)
    return getattr(sys.modules[module], name)


def _of_monkey(name: str) -> Any:
    # not there yet while another thread imports it: then nothing is patched
    return getattr(sys.modules.get("gevent.monkey"), name, None)


class Bell:
    """Wakes threads that wait for a change of something that other threads read.

    What they wait for is looked at by who rings, so that only those wake whom it concerns. So it
    must be quick, take no lock that is held while ringing, and not ring itself.
    """

    def __init__(self) -> None:
        self._lock = original("_thread", "RLock")()  # a signal's handler may ring in the midst
        self._sleepers: list[tuple[Callable[[], bool], Any]] = []

    def ring(self) -> None:
        """Say that something may have changed."""
        with self._lock:
            if self._sleepers:
                self._sleepers = [each for each in self._sleepers if not _woken(*each)]

    def wait(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until it is true (blocking, also for a hub); False if time is over first."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            sleeper = original("_thread", "allocate_lock")()
            sleeper.acquire()
            entry = (predicate, sleeper)
            with self._lock:
                self._sleepers.append(entry)
                if predicate():
                    self._forget(entry)
                    return True
            left = -1 if deadline is None else max(0.0, deadline - time.monotonic())
            if not sleeper.acquire(timeout=left):
                self._forget(entry)
                return predicate()

    def _forget(self, entry: tuple[Callable[[], bool], Any]) -> None:
        with self._lock:
            if entry in self._sleepers:
                self._sleepers.remove(entry)


def _woken(predicate: Callable[[], bool], sleeper: Any) -> bool:
    try:
        if not predicate():
            return False
    except Exception:
        pass  # it is for who waits to see
    with contextlib.suppress(RuntimeError):  # an interrupted ring() has done it
        sleeper.release()
    return True
