"""The base class of models that each worker process loads for itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic

from ._base.types import Items, R, T

__all__ = ["ManagedModel"]


class ManagedModel(Generic[T, R]):
    """Base class of models that each worker process loads for itself.

    A subclass loads the model in `init_model` and runs it in `predict`. The worker sets
    CUDA_VISIBLE_DEVICES before it calls `init_model`. A framework that is first imported there sees
    only the GPU of this worker.

    Save a ``state_dict`` for this: since torch 2.6, ``torch.load(path)`` refuses a whole module.

    Attributes:
        model: for `init_model` to set; None at first.
        gpu_id: the GPU of this worker. None: the environment decides.

    Example:
        >>> class Classifier(ManagedModel):
        ...     def init_model(self, path):
        ...         import torch
        ...
        ...         self.device = "cuda" if torch.cuda.is_available() else "cpu"
        ...         self.model = torch.nn.Linear(384, 2)
        ...         self.model.load_state_dict(torch.load(path, map_location=self.device))
        ...         self.model.to(self.device).eval()
        ...
        ...     def predict(self, batch):  # a list of numpy arrays of shape (384,)
        ...         import numpy as np
        ...         import torch
        ...
        ...         with torch.no_grad():
        ...             inputs = torch.from_numpy(np.stack(batch)).to(self.device)
        ...             return self.model(inputs).cpu().numpy()
        >>> def main():  # of a script
        ...     streamer = Streamer(Classifier, 64, model_init_args=["weights.pt"])
    """

    if not TYPE_CHECKING:
        # Type parameters have defaults for type checkers only, so any number of them is accepted.
        __class_getitem__ = classmethod(GenericAlias)

    model: Any
    gpu_id: int | str | None

    def __init__(self, gpu_id: int | str | None = None) -> None:
        """Select the GPU of this process.

        Args:
            gpu_id: passed to `set_gpu_id`: a GPU number, or any other value of
                CUDA_VISIBLE_DEVICES, such as "0,1" or "" (no GPU).
        """
        self.model = None
        self.gpu_id = gpu_id
        self.set_gpu_id(gpu_id)

    @staticmethod
    def set_gpu_id(gpu_id: int | str | None = None) -> None:
        """Set CUDA_VISIBLE_DEVICES of this process. None leaves it unchanged.

        It has no effect on a framework that has already used CUDA in this process.
        """
        if gpu_id is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu_id)

    def init_model(self, *args: Any, **kwargs: Any) -> None:
        """Load the model and store it in ``self.model``. Called once, in the worker process.

        Args:
            *args: the streamer's ``model_init_args``.
            **kwargs: the streamer's ``model_init_kwargs``.

        Raises:
            NotImplementedError: the subclass does not define it.
            Exception: any exception is raised to callers as `WorkerInitError`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define init_model()")

    def predict(self, batch: list[T]) -> Items[R] | Iterator[Any]:
        """Run the model on one batch.

        Args:
            batch: the items of one or more requests; at most ``batch_size``.

        Returns:
            A sequence with one output per item, in the same order.

        Raises:
            NotImplementedError: the subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} must define predict()")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(gpu_id={self.gpu_id!r})"
