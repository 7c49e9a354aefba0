"""Finds out what is to be shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import RedisWorker
from .._base.messages import wrong_option
from ..extend import BaseStreamer
from ..hub import ModelHandle, ModelHub
from ._hub import HubTarget
from ._targets import StreamerTarget, Target, WorkerTarget


def targets(
    shown: Any, queue_share: float | None, without_workers: bool = False
) -> dict[str, Target]:
    """Return the targets by name.

    Raises:
        TypeError: `shown` is not a streamer, a RedisWorker, a hub, or a mapping of them.
        ValueError: a name or `queue_share` is invalid.
    """
    if queue_share is not None and not 0 <= queue_share <= 1:
        raise wrong_option(
            f"ready_queue_share must be between 0 and 1, or None, not {queue_share!r}"
        )
    mapping = shown if isinstance(shown, Mapping) else {"default": shown}
    if not mapping:
        raise wrong_option(f"streamers must contain at least one streamer, not {shown!r}")
    found: dict[str, Target] = {}
    for name, each in mapping.items():
        if not isinstance(name, str) or not name or "/" in name:
            raise wrong_option(f"the name of a streamer must be a str without '/', not {name!r}")
        if isinstance(each, BaseStreamer):
            found[name] = StreamerTarget(each, queue_share, without_workers)
        elif isinstance(each, RedisWorker):
            found[name] = WorkerTarget(each, queue_share)
        elif isinstance(each, ModelHub):
            found[name] = HubTarget(each)
        else:
            remedy = ": pass its hub" if isinstance(each, ModelHandle) else ""
            raise wrong_option(
                f"expected a streamer, a RedisWorker or a ModelHub, not {each!r}{remedy}",
                TypeError,
            )
    return found
