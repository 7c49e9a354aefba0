"""What the signature of a native model tells about its tensors."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ._tensor_spec import TensorSpec

if TYPE_CHECKING:
    from ..torch import Signature
    from ..torch import TensorSpec as TorchSpec

_DATATYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    **{f"int{size}": f"INT{size}" for size in (8, 16, 32, 64)},
    **{f"float{size}": f"FP{size}" for size in (16, 32, 64)},
    "bfloat16": "BF16",
}

Specs = dict[str, TensorSpec]


def specs_of(signature: Signature, generated: Collection[str | None]) -> tuple[Specs, Specs]:
    """Return the inputs that an item has, and the outputs.

    An output without a name of its own is "output", or "output_0", "output_1" and so on.

    Args:
        signature: of the model.
        generated: the names of the inputs that it makes itself.
    """
    inputs = [each for each in signature.inputs if each.name not in generated]
    names = [each.name for each in signature.outputs]
    if signature.output_structure == "tensor":
        names = ["output"]
    elif signature.output_structure != "dict":
        names = [f"output_{number}" for number in range(len(names))]
    return (
        _specs([each.name for each in inputs], inputs),
        _specs(names, signature.outputs),
    )


def _specs(names: Sequence[str], tensors: Sequence[TorchSpec]) -> Specs:
    """Return the specs by name; none if the protocol does not have one of the types."""
    if any(each.dtype not in _DATATYPES for each in tensors):
        return {}
    return {
        name: TensorSpec(
            _DATATYPES[each.dtype],
            tuple(size if type(size) is int else -1 for size in each.shape[1:]),
        )
        for name, each in zip(names, tensors, strict=True)
    }
