"""Native models: torch modules compiled into a file, which runs without the interpreter.

::

    import service_streamer.torch

    service_streamer.torch.compile(module, (ids, mask), "encoder.pt2", max_batch=64, sequence=512)
    model = service_streamer.torch.NativeModel("encoder.pt2", collate="pad")
    streamer = service_streamer.ThreadedStreamer(model, batch_size=64)

Importing this imports no torch; what needs it does.
"""

from __future__ import annotations

from ._compile import compile
from ._errors import AnswersDiffer, CompileError, DimensionFixed, ModelFileError, SidecarError
from ._native import NativeModel
from ._sidecar import Signature, TensorSpec, read_sidecar

__all__ = [
    "AnswersDiffer",
    "CompileError",
    "DimensionFixed",
    "ModelFileError",
    "NativeModel",
    "SidecarError",
    "Signature",
    "TensorSpec",
    "compile",
    "read_sidecar",
]

# users see where to import from, not where the definition is
for _name in __all__:
    _member = globals()[_name]
    _member.__module__ = __name__
del _name, _member
