"""The inputs of an encoder by their roles, and its outputs as rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

FEATURES = {"ids": "input_ids", "mask": "attention_mask", "types": "token_type_ids"}
"""the names of transformers, by role"""

_ROWS = ("sentence_embedding", "logits", "scores", "last_hidden_state", "token_embeddings")
"""the outputs that are looked for by name; else the first counts"""


def role_of(name: str) -> str:
    """Return the role of an input: a key of `FEATURES`."""
    lower = name.lower()
    if "mask" in lower:
        return "mask"
    return "types" if "type" in lower or "segment" in lower else "ids"


def pick(output: Any) -> Any:
    """Return the output that has the rows, of several."""
    if isinstance(output, Mapping):
        return next((output[name] for name in _ROWS if name in output), next(iter(output.values())))
    return output[0] if isinstance(output, tuple | list) else output


def array_of(row: Any) -> Any:
    """Return an array of an array, or of a tensor on any device and of any type."""
    if hasattr(row, "detach"):
        row = row.detach().float().cpu()
    return np.asarray(row)
