"""Makes room for models within the limits of the hub."""

from __future__ import annotations

import contextlib
import functools
import time

from ..._base.errors import StreamerClosed
from ..._waiting.threads import Condition, original
from .. import _log, _memory
from .._forwarding import Forwarding
from .._models import State, Version
from .._sharing.streamer import SharedStreamer
from . import room as _room
from .jobs import Jobs
from .room import Limits, victims_for

MAX_DRAINS = 256  # versions that are drained at the same time, each by a thread


class Budget(Forwarding):
    """A base class of `Loader`: the versions that hold room, and those that have to leave."""

    def __init__(self, limits: Limits, threads: int) -> None:
        super().__init__()
        self._limits = limits
        self._max_threads = threads
        self._holders: list[Version] = []
        """all versions that hold room"""

    def _begin(self) -> None:
        """Make the locks, also in a forked child."""
        self.lock = original("_thread", "allocate_lock")()
        """guards the models, the versions, and the members of `Budget` and `Loader`"""
        self._jobs = Jobs(self._max_threads, "service-streamer-loader")
        self._drains = Jobs(MAX_DRAINS, "service-streamer-unload")
        self._drops = Jobs(MAX_DRAINS, "service-streamer-drop")  # these wait for loads
        self._changes = 0
        self._changed = Condition()

    def drain(self, version: Version) -> None:
        """Close the streamer of a retired version when its requests have ended."""
        raise NotImplementedError

    def _make_room(self, version: Version, loaded: bool) -> bool:
        """Unload other versions until there is room for this one.

        Args:
            version: to be loaded.
            loaded: its streamer exists, and holds its room. The method does not wait for loads
                then, because these may wait for this one. It returns False instead.

        Raises:
            ModelTooLarge, NoRoomForModel: there will be no room.
        """
        while True:
            self._measure_again()
            with self.lock:
                if self._closed:
                    raise StreamerClosed("the hub is closed")
                self._limits.check(version)
                others = [each for each in self._holders if each is not version]
                if self._limits.allow(version, others):
                    if not version.holds_room:
                        version.holds_room = True
                        self._holders.append(version)
                    return True
                victims = victims_for(version, others, self._limits, time.monotonic())
                states = {each.state for each in others}
                for victim in victims or ():
                    self._retire(victim)
                    victim.evicted_at = time.monotonic()
                changes = self._changes
            for victim in victims or ():
                self._drain_soon(victim)
            if victims is None:
                if states.isdisjoint({State.LOADING, State.DRAINING}):
                    raise self._limits.refusal(version, others)
                if loaded and State.DRAINING not in states:
                    return False
            patience = _room.PATIENCE if victims or State.DRAINING in states else None
            self._changed.wait_for(lambda seen=changes: self._changes != seen, patience)  # type: ignore[misc]

    def _drain_soon(self, version: Version) -> None:
        try:
            self._drains.start(functools.partial(self.drain, version))
        except RuntimeError:  # no thread can start
            self.drain(version)

    def _measure_again(self) -> None:
        """Measure the worker processes again: models grow with their first requests."""
        if self._limits.memory is None:
            return
        with self.lock:
            loaded = [(each, each.streamer) for each in self._holders if each.streamer is not None]
        for version, streamer in loaded:
            size = _memory.of_workers(streamer)
            if size and version.size is not None:
                version.size = version.size._replace(host=size)

    def _worker_died(self, version: Version) -> None:
        """Count a death of the shared worker that ran a version; after the second, move it.

        Called before the next worker starts. That one refuses the requests that are in its queue,
        and they wait for the load in a process of its own.
        """
        with self.lock:
            version.worker_deaths += 1
            moves = self._moves_apart(version)
        _log.worker_died(version)
        if moves:
            with contextlib.suppress(RuntimeError):  # at exit no thread can start
                self._drains.start(functools.partial(self.drain, version))

    def _moves_apart(self, version: Version) -> bool:
        """Retire a ready version that must leave its shared worker. True: the caller drains it."""
        streamer = version.streamer
        if self._closed or version.state is not State.READY or not version.is_apart:
            return False
        if not isinstance(streamer, SharedStreamer):
            return False
        version.wanted = True
        self._retire(version)
        streamer.refuse()
        return True

    def _retire(self, version: Version) -> None:
        streamer = version.streamer
        assert streamer is not None
        self._drained.add(streamer)
        version.leaving, version.streamer = streamer, None
        version.retired_at = time.monotonic()
        version.state = State.DRAINING

    def _free(self, version: Version) -> None:
        if version.holds_room:
            version.holds_room = False
            self._holders.remove(version)

    def _notify(self) -> None:
        with self.lock:
            self._changes += 1
        self._changed.notify()
