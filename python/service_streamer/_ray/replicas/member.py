"""One replica, as its owner knows it."""

from __future__ import annotations

import dataclasses
import time
from typing import Any


@dataclasses.dataclass(eq=False)
class Member:
    """One replica."""

    number: int
    handle: Any
    started: float = dataclasses.field(default_factory=time.monotonic)
    placed: bool = False
    """Ray has started it on a node"""
    ready: bool = False
    """it has loaded the model"""
    ended: bool = False
    """it has died, or is to end once it is idle"""
    about: str = ""  # what `Replica.load` told of it
