"""The backend of a model that shares a worker process: it uses the streamer of the worker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from ... import _core
from ..._base.errors import CancelledError, QueueFull, RequestTimeout, StreamerClosed
from ..._base.options import LONGEST_TENANT
from ..._engine.backend import Backend, join_in_background
from ..._engine.future import outcome_of
from ..._statistics.stats import OUTCOMES
from ..._streamers.streamer import Component
from ..._waiting.threads import Condition, original
from .entries import items_of
from .memory import PackedModel
from .worker import SharedWorker

_OUTCOMES = {
    QueueFull: "rejected",
    RequestTimeout: "expired",
    StreamerClosed: "dropped",
    CancelledError: "cancelled",
}


class SharedEngine:
    """The engine of a worker, for the requests of one model: an `EngineLike`.

    Args:
        worker: the streamer that has the engine.
        packed: the model.
        tenant: its name in the queue.
    """

    def __init__(self, worker: Component, packed: PackedModel, tenant: str) -> None:
        self.id = os.urandom(16).hex()
        self.created = time.monotonic()
        self._worker = worker
        self._packed = packed
        self._tenant = tenant
        self._lock = original("_thread", "allocate_lock")()  # guards the next three
        self._closed = False
        self._in_flight = 0
        self._counts = dict.fromkeys(("submitted", *OUTCOMES), 0)
        self._ended = Condition()

    def predict(
        self, batch: Any, timeout: float | None, priority: int, tenant: str | None = None
    ) -> Any:
        """Do what ``Engine.predict`` does."""
        items = self._begin(batch)
        outcome = "completed"
        try:
            engine = self._worker.engine
            return engine.predict(items, timeout, priority, self._tenant_of(tenant))
        except BaseException as error:
            outcome = _outcome(error)
            raise
        finally:
            self._end(outcome)

    def submit(self, *request: Any) -> Any:
        """Do what ``Engine.submit`` does."""
        return self._send(self._worker.engine.submit, *request)

    def submit_async(self, *request: Any) -> Any:
        """Do what ``Engine.submit_async`` does."""
        return self._send(self._worker.engine.submit_async, *request)

    def close(self, drain: bool) -> None:
        """Reject new requests. Those in the queue end with their worker, or are answered."""
        with self._lock:
            self._closed = True

    def closed(self) -> bool:
        """Return True if new requests are rejected."""
        return self._closed

    def join(self, timeout: float | None) -> bool:
        """Block until all requests have ended; return False on timeout."""
        return self._ended.wait_for(lambda: not self._in_flight, timeout)

    def abort(self) -> None:
        """Do nothing: the worker ends what is left."""

    def stats(self) -> dict[str, int]:
        """Return the fields of `EventStats` that count requests."""
        with self._lock:
            return dict(self._counts)

    def _send(
        self,
        submit: Callable[..., Any],
        batch: Any,
        timeout: float | None,
        priority: int,
        tenant: str | None = None,
        context: bytes | None = None,
        *admitted: bool,
    ) -> Any:
        items = self._begin(batch)
        try:
            future = submit(items, timeout, priority, self._tenant_of(tenant), context, *admitted)
        except BaseException as error:
            self._end(_outcome(error))
            raise
        future.add_done_callback(self._done)
        return future

    def _begin(self, batch: Any) -> list[Any]:
        items = items_of(self._packed, _core.item_list(batch))
        with self._lock:
            if self._closed:
                raise StreamerClosed("the model was unloaded")
            self._in_flight += 1
            self._counts["submitted"] += 1
        return items

    def _end(self, outcome: str) -> None:
        with self._lock:
            self._in_flight -= 1
            self._counts[outcome] += 1
        if self._closed:
            self._ended.notify()

    def _done(self, future: Any) -> None:
        outcome, _ = outcome_of(future) or ("failed", 0.0)
        self._end(outcome)

    def _tenant_of(self, tenant: Any) -> Any:
        if tenant is not None and not isinstance(tenant, str):
            return tenant  # the engine refuses it
        return f"{self._tenant}/{tenant or ''}"[-LONGEST_TENANT:]


class SharedBackend:
    """A `Backend`: the worker of a model, in the process that loads it or in a forked child.

    Args:
        worker: that runs the model.
        packed, tenant: those of `SharedEngine`.
        batch_size: of the model.
        owns: False in a forked child, which loads and unloads nothing.
    """

    remote = True
    pieces_to: bytes | None = None

    def __init__(
        self,
        worker: SharedWorker,
        packed: PackedModel,
        tenant: str,
        batch_size: int,
        owns: bool,
    ) -> None:
        self.engine = SharedEngine(worker.component, packed, tenant)
        self.memory: int | None = None
        """bytes that the model takes in the worker; None: it is not loaded"""
        self._worker = worker
        self._packed = packed
        self._batch_size = batch_size
        self._owns = owns

    def wait_ready(self, timeout: float | None) -> bool:
        """Load the model in the worker; return False on timeout."""
        if self._owns and self.memory is None:
            self.memory = self._worker.load(self._packed, timeout)
        return not self._owns or self.memory is not None

    def close(self, drain: bool) -> None:
        self.engine.close(drain)

    def close_alone(self, drain: bool) -> None:
        self.close(drain)
        join_in_background(self)

    def join(self, timeout: float | None) -> bool:
        owned, self._owns = self._owns, False
        if owned:
            self._worker.unload(self._packed, timeout)
        return True

    def own_this_thread(self) -> bool:
        return self._shared.own_this_thread()

    @property
    def _shared(self) -> Backend:
        return self._worker.component.backend

    def stats(self, timeout: float | None = None) -> dict[str, Any]:
        values = self._shared.stats(timeout)
        own = {
            "engine_id": self.engine.id,
            "uptime": time.monotonic() - self.engine.created,
            "batch_size": self._batch_size,
        }
        return {**values, **self.engine.stats(), **own}

    def configure(self, change: Mapping[str, Any]) -> NoReturn:
        raise NotImplementedError(
            "a model that shares a worker process cannot be configured: use shared=False"
        )

    def start_recording(self, seconds: float, max_events: int) -> int:
        return self._shared.start_recording(seconds, max_events)

    def finish_recording(self, number: int) -> bytes:
        return self._shared.finish_recording(number)


def _outcome(error: BaseException) -> str:
    default = "failed" if isinstance(error, Exception) else "cancelled"
    return next((name for kind, name in _OUTCOMES.items() if isinstance(error, kind)), default)
