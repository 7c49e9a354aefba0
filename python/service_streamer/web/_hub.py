"""What the routes show of a hub, and how they steer it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from .._base.errors import RequestTimeout
from .._statistics.formats import memory as shown
from ..hub import ModelHub, ModelLoadError, ModelStatus, UnknownModel, view_of
from ._targets import Look, Task, Wait

CHANGES: tuple[str, ...] = (
    *("load", "unload", "pin", "unpin"),
    *("canary", "promote", "end", "rollback"),
)


class HubTarget:
    """A `Target` for a hub."""

    kind = "ModelHub"
    label = "ModelHub"
    changes = CHANGES
    check = None
    sample = None

    def __init__(self, hub: ModelHub) -> None:
        self.hub = hub
        self._view = view_of(hub)

    def call_at_next_request(self, function: Callable[[], object]) -> bool:
        return True

    def look(self) -> Look:
        status = self.hub.status()
        reason = self.closing() or self._view.obstacle()
        return Look(None, reason, self._verdict(status), status)

    def closing(self) -> str:
        return "the hub is closed" if self._view.is_closed else ""

    def trace(self, seconds: float, wait: Wait) -> bytes:
        raise NotImplementedError("a hub has many streamers: use `record` of one of its handles")

    def change(self, wanted: Mapping[str, Any]) -> Task | None:
        if len(wanted) != 1:
            raise ValueError(f"one change of a hub at a time, not {', '.join(wanted)}")
        ((change, name),) = wanted.items()
        plan: dict[str, Any] = {}
        if change == "canary":
            if not isinstance(name, dict) or "model" not in name:
                raise ValueError(f"canary must be an object with a model, not {name!r}")
            plan = {key: value for key, value in name.items() if key != "model"}
            name = name["model"]
        if not isinstance(name, str):
            raise ValueError(f"{change} must be the name of a model, not {name!r}")
        try:
            return self._canary(name, plan) if change == "canary" else self._change(change, name)
        except UnknownModel as error:
            raise ValueError(str(error)) from error
        except ModelLoadError as error:
            raise RuntimeError(str(error)) from error

    def _change(self, change: str, name: str) -> Task | None:
        hub = self.hub
        if change == "load":
            hub.get(name)
            texts = (f"load {name}", f"{name} is loaded", f"{name} was not loaded")
            return Task(change, lambda: hub.load(name), *texts)
        if change == "unload":
            self._view.versions(name)
            texts = (f"unload {name}", f"{name} is unloaded", f"{name} was not unloaded")
            return Task(change, lambda: hub.unload(name), *texts)
        if change == "rollback":
            with contextlib.suppress(RequestTimeout):  # it takes over when it is loaded
                hub.rollback(name, timeout=0)
            return None
        direct: dict[str, Callable[[str], object]]
        direct = {"pin": hub.pin, "unpin": hub.unpin}
        direct |= {"promote": hub.promote, "end": hub.end_canary}
        direct[change](name)
        return None

    def _canary(self, name: str, plan: Mapping[str, Any]) -> Task:
        version, share = self._view.check_canary(name, plan)
        texts = (
            f"load {version} as a canary",
            f"canary {version} gets {share:.0%} of the requests",
            f"canary {version} has not begun",
        )
        return Task("canary", lambda: self.hub.canary(name, **plan), *texts)

    def _verdict(self, models: Mapping[str, ModelStatus]) -> str:
        versions = [each for model in models.values() for each in model.versions.values()]
        limits = self._view.limits
        loaded = [each for each in versions if each.state == "ready"]
        failed = sum(each.state == "failed" for each in versions)
        failed += sum(not each.versions for each in models.values())
        room = "" if limits.max_loaded is None else f" of at most {limits.max_loaded}"
        are = "version is" if len(loaded) == 1 and not room else "versions are"
        parts = [f"{len(loaded)}{room} {are} loaded"]
        for kind, used, most in (
            ("memory", sum(each.memory or 0 for each in loaded), limits.memory),
            ("GPU memory", sum(each.gpu_memory or 0 for each in loaded), limits.gpu_memory),
        ):
            budget = "" if most is None else f" of {shown(most)}"
            if used or budget:
                parts.append(f"{shown(used)}{budget} of {kind}")
        if failed:
            parts.append(f"{failed} cannot be loaded")
        if degraded := [each.name for each in models.values() if each.degraded is not None]:
            parts.append(f"degraded: {', '.join(degraded)}")
        return ", ".join(parts) + "."
