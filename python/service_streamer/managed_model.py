"""A model that a worker process makes for itself, on its own GPU."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["ManagedModel"]


class ManagedModel:
    """Base class of models that are built in the worker that runs them.

    A subclass says in `init_model` how the model is made and in `predict` how it runs. The worker
    constructs it with its GPU before it calls `init_model`, so that a framework which is first
    imported there sees that GPU only::

        class Sentiment(ManagedModel):
            def init_model(self, name):
                from transformers import pipeline
                self.model = pipeline("sentiment-analysis", name, device="cuda")

            def predict(self, batch):
                return self.model(batch)

    Attributes:
        model: What `init_model` has made; None before.
        gpu_id: The GPU that was asked for; None leaves the choice to the environment.
    """

    model: Any
    gpu_id: int | str | None

    def __init__(self, gpu_id: int | str | None = None) -> None:
        """Chooses the GPU for this process.

        Args:
            gpu_id: Given to `set_gpu_id`: the number of a GPU, or anything else that
                CUDA_VISIBLE_DEVICES may hold, such as "0,1" or "" (no GPU).
        """
        self.model = None
        self.gpu_id = gpu_id
        self.set_gpu_id(gpu_id)

    @staticmethod
    def set_gpu_id(gpu_id: int | str | None = None) -> None:
        """Sets CUDA_VISIBLE_DEVICES of this process; None leaves it as it is.

        It has no effect on a framework that has already used CUDA in this process.
        """
        if gpu_id is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu_id)

    def init_model(self, *args: Any, **kwargs: Any) -> None:
        """Makes the model and keeps it in `self.model`. Called once, in the worker.

        Args:
            *args: The streamer's `model_init_args`.
            **kwargs: The streamer's `model_init_kwargs`.

        Raises:
            NotImplementedError: Where a subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} must define init_model()")

    def predict(self, batch: list[Any]) -> Any:
        """Runs the model on a batch.

        Args:
            batch: The items of one or more requests.

        Returns:
            A sequence with one output for each item, in the same order.

        Raises:
            NotImplementedError: Where a subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} must define predict()")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(gpu_id={self.gpu_id!r})"
