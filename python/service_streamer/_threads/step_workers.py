"""The backend of a `ThreadedStreamer` with a `StepModel`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._base.options import Options, no_target_of_steps
from .._models.model import name_of
from .._models.step_model import StepModel
from .._models.steps.loop import Loop
from .worker import ModelThreads


class StepWorkers(ModelThreads):
    """An engine and the thread that steps its items.

    To the engine each place for a live item is a worker, which takes one item at a time.
    """

    def __init__(self, model: StepModel, options: Options) -> None:
        super().__init__(model, name_of(model), options.for_steps(), count=1)
        self.engine.set_workers(options.batch_size)
        self._loop = Loop(
            self.engine, model, options.batch_size, options.isolate_errors, self._name
        )

    def stats(self, timeout: float | None = None) -> dict[str, Any]:
        steps = self._loop.stats()
        return {
            **super().stats(timeout),
            "batch_size": self._loop.limit,
            "workers": 1,
            "busy_time": steps.pop("busy_time"),
            "steps": steps,
        }

    def configure(self, change: Mapping[str, Any]) -> None:
        if change.get("slo"):
            raise no_target_of_steps(change["slo"])
        if (limit := change.get("batch_size")) is not None:
            self._loop.limit = limit
            self.engine.set_workers(limit)

    def run_model(self) -> None:
        self._loop.run()
