"""The room of a hub: which versions hold it, and which have to leave for another one."""

from __future__ import annotations

from .._errors import NoRoomForModel
from .._models import State, Version
from .limits import Limits

PATIENCE = 10.0  # s


class Budget:
    """The versions that hold room within the limits. Has no lock and no clock, and never blocks.

    A version takes its room before it is loaded, and again when its size is known. It frees the
    room when it was unloaded. The `Loader` owns the budget and calls it under its own lock.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.holders: list[Version] = []
        """all versions that hold room"""

    def take(self, version: Version) -> bool:
        """Give a version its room. Return False if there is too little; nothing has changed then.

        Raises:
            ModelTooLarge: the version alone is over the limits.
        """
        self.limits.check(version)
        if not self.limits.allow(version, self._others(version)):
            return False
        if not version.holds_room:
            version.holds_room = True
            self.holders.append(version)
        return True

    def free(self, version: Version) -> None:
        """Take the room of a version back, if it holds any."""
        if version.holds_room:
            version.holds_room = False
            self.holders.remove(version)

    def victims(self, version: Version, now: float) -> list[Version] | None:
        """Return the versions to unload, those that were not used for the longest time.

        The room of versions that drain is awaited, but not for longer than PATIENCE.

        Args:
            version: that needs room.
            now: monotonic time.

        Returns:
            None: unloading all that may be unloaded is not enough.
        """
        staying = [
            each
            for each in self._others(version)
            if each.state is not State.DRAINING or now - each.retired_at >= PATIENCE
        ]
        candidates = [
            each
            for each in staying
            if each.state is State.READY and not each.model.pinned and each is not version.beside
        ]
        candidates.sort(key=lambda each: each.used)
        victims: list[Version] = []
        while not self.limits.allow(version, staying):
            if not candidates:
                return None
            victims.append(candidates.pop(0))
            staying.remove(victims[-1])
        return victims

    def states_beside(self, version: Version) -> set[State]:
        """Return the states of the other versions that hold room."""
        return {each.state for each in self._others(version)}

    def refusal(self, version: Version) -> NoRoomForModel:
        """Return the error if the others cannot be unloaded."""
        return self.limits.refusal(version, self._others(version))

    def _others(self, version: Version) -> list[Version]:
        return [each for each in self.holders if each is not version]
