"""Models of torch: compiled to a file that runs without the GIL, or called as they are.

`compile` makes a file of a module, and `NativeModel` runs it. `BatchedModel` makes batches for any
callable on tensors, without compiling it.

Importing this package does not import torch. Functions that need torch import it.
"""

from __future__ import annotations

from ._batched import BatchedModel
from ._compile import compile
from ._errors import AnswersDiffer, CompileError, DimensionFixed, ModelFileError, SidecarError
from ._images import normalize_images
from ._native import NativeModel
from ._sidecar import Signature, TensorSpec, read_sidecar

__all__ = [
    "AnswersDiffer",
    "BatchedModel",
    "CompileError",
    "DimensionFixed",
    "ModelFileError",
    "NativeModel",
    "SidecarError",
    "Signature",
    "TensorSpec",
    "compile",
    "normalize_images",
    "read_sidecar",
]

# Show the public module in reprs and tracebacks, not the private one.
for _name in __all__:
    _member = globals()[_name]
    _member.__module__ = __name__
del _name, _member
