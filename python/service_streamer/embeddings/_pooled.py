"""A module of torch whose output is one row for each item. Importing this module imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ._errors import InvalidVector
from ._rows import FEATURES, pick


class Pooled(torch.nn.Module):  # type: ignore[misc]  # Any where torch is not installed
    """Calls a module on a batch, and pools its outputs for each token, on its device.

    Args:
        model: the module or function.
        names: of its arguments, by role: "ids", "mask", "types", and those of collate="pack". None:
            it takes one dict with the names of transformers.
        pooling: "mean", "cls" or "last".
        activation: is called with the rows. None: nothing is.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        names: Mapping[str, str] | None,
        pooling: str,
        activation: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self._names = names
        self._pooling = pooling
        self._activation = activation

    def forward(self, **inputs: Any) -> Any:
        """Return [texts, width], float32.

        The inputs are [texts, tokens] each, or [tokens of all texts] if ``cu_seqlens`` is there.
        """
        bounds = inputs.get("cu_seqlens")
        if bounds is None:
            inputs.setdefault("mask", torch.ones_like(inputs["ids"]))  # none: one length
        if self._names is None:
            output = self.model({FEATURES[role]: each for role, each in inputs.items()})
        else:
            output = self.model(
                **{name: inputs[role] for role, name in self._names.items() if role in inputs}
            )
        rows = pick(output)
        if bounds is not None:
            rows = self._pool_packed(rows, bounds) if len(rows) == len(inputs["ids"]) else rows
        elif rows.dim() > 2:
            rows = self._pool(rows, inputs["mask"])
        rows = rows.float()
        return rows if self._activation is None else self._activation(rows)

    def _pool_packed(self, rows: Any, bounds: Any) -> Any:
        if self._pooling == "mean":
            return torch.segment_reduce(rows.float(), "mean", lengths=bounds.diff())
        return rows[bounds[:-1] if self._pooling == "cls" else bounds[1:] - 1]

    def _pool(self, rows: Any, mask: Any) -> Any:
        if mask.shape != rows.shape[:2]:
            raise InvalidVector(
                f"the model returned {tuple(rows.shape)}, which is not one row for each of "
                f"{tuple(mask.shape)} tokens"
            )
        if self._pooling == "cls":
            return rows[:, 0]
        lengths = mask.sum(1)
        if self._pooling == "last":
            return rows[torch.arange(len(rows), device=rows.device), lengths - 1]
        seen = rows.float().masked_fill(mask[:, :, None] == 0, 0)
        return seen.sum(1) / lengths[:, None]
