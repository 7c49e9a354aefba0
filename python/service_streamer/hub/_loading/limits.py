"""What the models of a hub may use together."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from ..._statistics.formats import memory as shown
from .._errors import ModelTooLarge, NoRoomForModel
from .._memory import Size
from .._models import Version

_NOTHING = Size(0)


@dataclasses.dataclass(frozen=True)
class Limits:
    """What all loaded models may use together. None: no limit."""

    max_loaded: int | None = None
    memory: int | None = None
    gpu_memory: int | None = None

    def check(self, version: Version) -> None:
        """Raise ModelTooLarge if the version alone is over the budget."""
        size = version.size or _NOTHING
        for kind, used, most in self._budgets([size]):
            if used > most:
                raise ModelTooLarge(
                    f"model {version.name} needs {shown(used)} of {kind}, more than the budget of "
                    f"{shown(most)}"
                )

    def allow(self, version: Version, others: Collection[Version]) -> bool:
        """Return True if the version may be loaded beside the others."""
        sizes = [each.size or _NOTHING for each in (version, *others)]
        count = 1 + sum(each is not version.beside for each in others)
        if self.max_loaded is not None and count > self.max_loaded:
            return False
        return all(used <= most for _, used, most in self._budgets(sizes))

    def refusal(self, version: Version, others: Collection[Version]) -> NoRoomForModel:
        """Return the error if the others cannot be unloaded."""
        kept = [each for each in others if each.model.pinned or each is version.beside]
        sizes = [each.size or _NOTHING for each in kept]
        limits = [f"{shown(used)} of {shown(most)} of {kind}"
                  for kind, used, most in self._budgets(sizes)]  # fmt: skip
        if self.max_loaded is not None:
            limits.insert(0, f"{len(kept)} of {self.max_loaded} models")
        size = "" if version.size is None else f" ({shown(version.size.host)})"
        return NoRoomForModel(
            f"no room for model {version.name}{size}: pinned models use {', '.join(limits)}; "
            "unpin one, or raise the limit"
        )

    def _budgets(self, sizes: Collection[Size]) -> list[tuple[str, int, int]]:
        found = []
        if self.memory is not None:
            found.append(("memory", sum(each.host for each in sizes), self.memory))
        if self.gpu_memory is not None:
            found.append(("GPU memory", sum(each.gpu for each in sizes), self.gpu_memory))
        return found
