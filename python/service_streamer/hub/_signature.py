"""What the signature of a native model, or an ONNX file, tells about its tensors."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ._tensor_spec import TensorSpec

if TYPE_CHECKING:
    from ..onnx import OnnxModel, TensorInfo
    from ..torch import Signature
    from ..torch import TensorSpec as TorchSpec

_DATATYPES = {
    "bool": "BOOL",
    **{f"uint{size}": f"UINT{size}" for size in (8, 16, 32, 64)},
    **{f"int{size}": f"INT{size}" for size in (8, 16, 32, 64)},
    **{f"float{size}": f"FP{size}" for size in (16, 32, 64)},
    "bfloat16": "BF16",
    "string": "STRING",
}

Specs = dict[str, TensorSpec]


def specs_of(
    signature: Signature | None, generated: Collection[str | None]
) -> tuple[str, Specs, Specs]:
    """Return the structure of an item, the inputs that it has, and the outputs.

    An output without a name of its own is "output", or "output_0", "output_1" and so on.

    Args:
        signature: of the model. None: it is not known.
        generated: the names of the inputs that it makes itself.
    """
    if signature is None:
        return "native", {}, {}
    inputs = [each for each in signature.inputs if each.name not in generated]
    names = [each.name for each in signature.outputs]
    if signature.output_structure == "tensor":
        names = ["output"]
    elif signature.output_structure != "dict":
        names = [f"output_{number}" for number in range(len(names))]
    return (
        signature.input_structure,
        _specs([each.name for each in inputs], inputs),
        _specs(names, signature.outputs),
    )


def specs_of_file(model: OnnxModel) -> tuple[str, Specs, Specs]:
    """Return the structure of an item, the inputs, and the outputs that callers get."""
    inputs, outputs = (
        _specs([each.name for each in tensors], tensors)
        for tensors in (model.inputs, model.outputs)
    )
    return "tensor" if len(model.inputs) == 1 else "dict", inputs, outputs


def _specs(names: Sequence[str], tensors: Sequence[TorchSpec | TensorInfo]) -> Specs:
    """Return the specs by name; none if a type is not one of the protocol, or a rank not known."""
    if any(each.dtype not in _DATATYPES or not each.shape for each in tensors):
        return {}
    return {
        name: TensorSpec(
            _DATATYPES[each.dtype],
            tuple(size if type(size) is int else -1 for size in (each.shape or ())[1:]),
        )
        for name, each in zip(names, tensors, strict=True)
    }
