"""The backend of a RayStreamer: an engine, and the exchange of its requests with the owner."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayError

from ... import _core
from ..._base.errors import ClusterError, StreamerClosed, StreamerError
from ..._base.messages import closed, see
from ..._base.options import Options
from ..._engine import lifecycle
from ..._engine.backend import EngineBackend
from ..._engine.pickling import unpack_error
from ..._engine.waiting_room import WaitingRoom
from ..._waiting import callbacks
from ..._waiting.backoff import Backoff
from ..._waiting.threads import NativeThread
from ..._waiting.timeouts import countdown
from .. import cluster
from .exchange import PAUSE, Exchange
from .sent import SentFuture

QUERY_TIMEOUT = 10.0  # s to wait for statistics and the like
LEAVE_PAUSE = 0.2  # s between two calls of leave() at close
CLOSE_PATIENCE = 10.0  # s for the owner to end its replicas, after the requests have ended
REACH = 2.0  # s, at least, for the owner to answer at close


@functools.cache
def _close_before_ray() -> None:
    """Close all clients at exit, before Ray shuts down: the hook of Ray is registered already."""
    atexit.register(lifecycle.close_some, RayClient)


class RayClient(WaitingRoom):
    """A `Backend`: its thread sends the requests to the owner, and another one gets the answers.

    Args:
        options: of this client.
        owner: the handle of the actor.
        name: for messages.
        owns: True: the owner ends with this client.
        window: most items that are sent and not answered.
    """

    remote = True
    thread_name = "service-streamer-sender"

    def __init__(self, options: Options, owner: Any, name: str, *, owns: bool, window: int) -> None:
        self.owns = owns
        self.owner = owner
        self.obstacle = ""
        """the reason why no replica was ready at the last call of `stats`"""
        self._name = name
        super().__init__(
            # the engine of the owner forms the batches
            dataclasses.replace(
                options,
                batch_size=1,
                policy="greedy",
                max_queue=window,
                slo=None,
                ageing=None,
                tenants=None,
                max_queue_per_tenant=None,
                grouping=None,
            ),
            future_type=SentFuture,
        )
        self._connection = cluster.connection()
        whole = options.output == "batch"
        self._exchange = Exchange(self.engine, cluster.Connected(owner), name, window, whole)
        self._receiver = NativeThread(self._exchange.receive, "service-streamer-receiver")
        self.cancel = self._exchange.cancel
        self._drains = True
        self._closed_owner = False
        _close_before_ray()

    # ---------------------------------------------------------------- as any backend

    def close(self, drain: bool) -> None:
        self._drains = self._drains and drain
        super().close(drain)

    def join(self, timeout: float | None) -> bool:
        left = countdown(timeout)
        exchange = self._exchange
        exchange.end()
        if self.owns and not self._closed_owner:
            self._closed_owner = True
            self._close_owner(timeout)
        reach = countdown(CLOSE_PATIENCE if timeout is None else left())
        # A call of leave() may be lost, so it is said until the thread has ended.
        while not self._receiver.join(min(LEAVE_PAUSE, reach() or LEAVE_PAUSE)):
            if self._is_connected():
                with contextlib.suppress(RayError, ValueError):
                    self.owner.leave.remote(exchange.client)
            if reach() == 0:
                return False
        if not all(thread.join(reach()) for thread in (*self._threads.values(), self._timer)):
            return False
        return callbacks.flush(left())

    close_alone = EngineBackend.close_alone  # its threads do not end by themselves

    def own_this_thread(self) -> bool:
        own = super().own_this_thread() or self._receiver.is_current()
        return own or callbacks.in_callback()

    def stats(self, timeout: float | None = None) -> dict[str, Any]:
        if timeout == 0:
            raise StreamerError("the owner of the streamer was not asked")
        values = dict(self._ask("stats", timeout=timeout))
        self.obstacle = values.pop("obstacle")
        return values

    def configure(self, change: Mapping[str, Any]) -> None:
        self._ask("configure", dict(change))
        self._exchange.changes = {**self._exchange.changes, **change}
        self.start()  # only then this client hears of a new owner

    def start_recording(self, seconds: float, max_events: int) -> int:
        return int(self._ask("start_recording", seconds, max_events))

    def finish_recording(self, number: int) -> bytes:
        return bytes(self._ask("finish_recording", number))

    def wait_ready(self, timeout: float | None) -> bool:
        patience = None if timeout is None else timeout + QUERY_TIMEOUT
        ready = self._call("wait_ready", timeout, timeout=patience)
        if isinstance(ready, list):
            raise unpack_error(ready)
        return bool(ready)

    # -------------------------------------------------------------------- its threads

    def start(self) -> None:
        super().start()
        self._receiver.start()

    def work(self) -> None:
        self._exchange.recover(None, "")
        super().work()

    def wait_for_room(self) -> None:
        self._exchange.wait_for_room()

    def woken(self) -> None:
        self._exchange.attend()

    def hand_on(self, batch: _core.Batch) -> None:
        self._exchange.send(batch)

    def ended(self) -> None:
        self._exchange.wait_for_end()

    # ------------------------------------------------------------------- of its own

    def resize(self, limits: tuple[int, int]) -> None:
        """Change the number of replicas."""
        self.configure({"replicas": limits})

    def replicas(self) -> list[str]:
        """Return what is known of each ready replica, as JSON."""
        return list(self._ask("replicas"))

    # ----------------------------------------------------------------------- private

    def _close_owner(self, timeout: float | None) -> None:
        """End the owner, if it has not ended with the connection to its cluster."""
        if not self._is_connected():
            return
        reach = CLOSE_PATIENCE if timeout is None else max(timeout, REACH)
        patience = None if timeout is None else timeout + CLOSE_PATIENCE
        with contextlib.suppress(RayError, ValueError):
            cluster.get(self.owner.leave.remote(self._exchange.client), reach)
            cluster.get(self.owner.close.remote(self._drains, timeout), patience)
        with contextlib.suppress(RayError, ValueError):
            ray.kill(self.owner)

    def _is_connected(self) -> bool:
        """Return whether the cluster is that of the start. Ray would connect to another one."""
        return cluster.connection() == self._connection

    def _ask(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        return self._call(method, *args, timeout=QUERY_TIMEOUT if timeout is None else timeout)

    def _call(self, method: str, *args: Any, timeout: float | None) -> Any:
        """Call a method of the owner; waits while Ray starts the owner again."""
        left = countdown(timeout)
        exchange = self._exchange
        backoff = Backoff(PAUSE)
        while True:
            if exchange.ending:
                raise StreamerClosed(closed(self._name))
            if not self._is_connected():
                text = f"this process has left the Ray cluster that has {self._name}"
                raise ClusterError(see(text, "clustererror"))
            try:
                return cluster.get(getattr(self.owner, method).remote(*args), left())
            except GetTimeoutError:
                break
            except ActorUnavailableError:
                exchange.changed.wait_for(lambda: exchange.ending, backoff.next())
            except RayActorError as error:
                text = f"the owner of {self._name} has ended: {error}"
                raise ClusterError(see(text, "clustererror")) from error
            if left() == 0:
                break
        raise StreamerError(f"the owner of {self._name} did not answer {method}()")
