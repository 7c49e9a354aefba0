"""How the outputs of several batches become the result of one request."""

from __future__ import annotations

import sys
from typing import Any

_MODULES = {"jax": "jax.numpy", "jaxlib": "jax.numpy"}  # where a library's functions of arrays are
_INDEXED = ("numpy", "torch", "cupy")  # libraries whose arrays take a list of indices


def join_outputs(pieces: list[Any]) -> Any:
    """Join the outputs of a request that was larger than a batch, for ``output="batch"``.

    Called by the core. Arrays and tensors are concatenated along the first dimension; everything
    else becomes a list.
    """
    name = _library_of(pieces[0])
    library: Any = sys.modules.get(_MODULES.get(name, name))
    if all(hasattr(piece, "shape") for piece in pieces):
        if hasattr(library, "concatenate"):  # numpy, torch, cupy, jax
            return library.concatenate(pieces)
        if hasattr(library, "concat"):  # pandas, tensorflow
            return library.concat(pieces, axis=0)
    return [output for piece in pieces for output in piece]


def in_order(outputs: Any, order: list[int]) -> Any:
    """Put the outputs of a request, whose items were sent in `order`, into the caller's order.

    Called by the core. With ``output="batch"``, `outputs` may be an array or a tensor.
    """
    positions = sorted(range(len(order)), key=order.__getitem__)
    if not hasattr(outputs, "shape"):
        return [outputs[position] for position in positions]
    if _library_of(outputs) in _INDEXED:
        return outputs[positions]
    return join_outputs([outputs[position : position + 1] for position in positions])


def parts_in_order(outputs: Any, order: list[int]) -> Any:
    """Put the outputs of a native model for a batch, a tensor or tensors, into the caller's order.

    Called by the core.
    """
    if isinstance(outputs, dict):
        return {name: parts_in_order(part, order) for name, part in outputs.items()}
    if isinstance(outputs, list | tuple):
        return type(outputs)(parts_in_order(part, order) for part in outputs)
    return in_order(outputs, order)


def _library_of(outputs: Any) -> str:
    return type(outputs).__module__.partition(".")[0]
