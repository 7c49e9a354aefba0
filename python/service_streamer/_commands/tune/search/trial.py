"""What a trial leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from .rates import Point
from .space import Settings


@dataclasses.dataclass(frozen=True)
class Trial:
    """One trial that has ended."""

    settings: Settings
    points: tuple[Point, ...] = ()
    rate: float = 0.0
    """the largest rate that kept the target; 0: none did"""
    estimate: float = 0.0
    """the rate above, or what it seems to be after an early end"""
    hopeless: bool = False
    """it ended early, because it cannot beat the best"""
    error: str | None = None
    """the reason why it failed"""

    def as_dict(self) -> dict[str, Any]:
        """Return what the journal keeps."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> Trial:
        """Create it from what the journal has kept."""
        settings, points = Settings(**kept["settings"]), (Point(**each) for each in kept["points"])
        return cls(**{**kept, "settings": settings, "points": tuple(points)})
