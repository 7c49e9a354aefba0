"""ONNX files as models of every streamer.

`OnnxModel` is a predict function on items. It makes batches, runs them with ONNX Runtime, and gives
each caller its rows.

=========  ======================================================================
_model     `OnnxModel`
_items     an item as arrays, in the order of the inputs
_batches   arrays of several items as one, in memory that is kept
_shapes    whether there are batches, of which size, and what is padded
_session   the session of ONNX Runtime
_file      the inputs and outputs of a file, without loading it
=========  ======================================================================

Importing this package imports neither onnxruntime nor numpy.
"""

from __future__ import annotations

from ._file import TensorInfo
from ._model import OnnxModel

__all__ = ["OnnxModel", "TensorInfo"]

for _name in __all__:  # help() and tracebacks show the public import path
    globals()[_name].__module__ = __name__
del _name
