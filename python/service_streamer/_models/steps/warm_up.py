"""The first steps of a model, before its first request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..step_model import StepModel


def run(model: StepModel, items: Sequence[Any], batch_size: int) -> None:
    """Step items until they are done; at most `batch_size` of them at a time."""
    for start in range(0, len(items), batch_size):
        live = list(model.admit(list(items[start : start + batch_size])))
        while live:
            results = zip(live, model.step(list(live)), strict=True)
            ended = [(state, done) for state, (_, done) in results]
            live = [state for state, done in ended if not done]
            if gone := [state for state, done in ended if done]:
                model.drop(gone)
