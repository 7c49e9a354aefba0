"""What is asked of a canary, by a call, a file or a request."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..._base import options
from ..._base.messages import wrong_option


@dataclasses.dataclass(frozen=True)
class CanaryPlan:
    """Which version is tried, and how: the arguments of `ModelHub.canary`."""

    version: int
    share: float
    """of the requests that it gets"""
    margin: float = 0.05
    """it ends if its error rate is higher than the other one by more than this"""
    min_requests: int = 100
    """it does not end before it has answered so many"""

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            TypeError, ValueError: one is wrong. The message names it.
        """
        options.count("version", self.version, least=0)
        options.count("min_requests", self.min_requests)
        for name in ("share", "margin"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise wrong_option(f"{name} must be a number from 0 to 1, not {value!r}", TypeError)
            if not 0 <= value <= 1:
                raise wrong_option(f"{name} must be from 0 to 1, not {value!r}")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> CanaryPlan:
        """Create it from the values of a file or a request. Raises as the constructor."""
        fields = {field.name: field for field in dataclasses.fields(cls)}
        for name in values:
            if name not in fields:
                raise wrong_option(f"a canary has no {name!r}; known are {', '.join(fields)}")
        for name in ("version", "share"):
            if name not in values:
                raise wrong_option(f"a canary needs a {name}")
        return cls(**values)
