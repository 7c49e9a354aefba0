"""What can go wrong with native models.

::

    StreamerError
    ├── CompileError         the module cannot be compiled, or not loaded again
    │   ├── DimensionFixed   a dimension that shall vary does not
    │   └── AnswersDiffer    the compiled model does not answer like the module
    ├── SidecarError         the description of a model is missing or wrong (also a ValueError)
    └── ModelFileError       it is no model, or none for this machine (also a ValueError)
"""

from __future__ import annotations

from typing import Any

from .._errors import StreamerError


class CompileError(StreamerError):
    """The module could not be compiled; torch's own exception is the cause."""


class DimensionFixed(CompileError):
    """A dimension that shall vary has one size only in the compiled model.

    Attributes:
        input: the name of the input.
        dimension: its dimension; 0 is the batch.
        size: the only size that it has.
    """

    def __init__(self, input: str, dimension: int, size: int) -> None:
        meaning = "the batch" if dimension == 0 else "the sequence"
        super().__init__(
            f"dimension {dimension} of input {input!r}, {meaning}, is fixed to {size}: the module "
            "computes with this size as with a constant (len(), int(), `if`, .view(2, -1)), or it "
            "was exported without naming the dimension as dynamic"
        )
        self.input = input
        self.dimension = dimension
        self.size = size

    def __reduce__(self) -> tuple[type[DimensionFixed], tuple[str, int, int]]:
        return type(self), (self.input, self.dimension, self.size)


class AnswersDiffer(CompileError):
    """The compiled model answers otherwise than the module itself.

    Attributes:
        output: the name of the output that differs.
        batch: the size of the batch that it was asked with.
        length: the length of the sequences; None where no input has one.
        difference: the largest difference of two numbers; None where shape or type differ.
    """

    def __init__(
        self, message: str, output: str, batch: int, length: int | None, difference: float | None
    ) -> None:
        at = f"a batch of {batch}" + ("" if length is None else f" of length {length}")
        super().__init__(f"output {output!r} for {at}: {message}")
        self.message = message
        self.output = output
        self.batch = batch
        self.length = length
        self.difference = difference

    def __reduce__(self) -> tuple[type[AnswersDiffer], tuple[Any, ...]]:
        arguments = (self.message, self.output, self.batch, self.length, self.difference)
        return type(self), arguments


class SidecarError(StreamerError, ValueError):
    """The description of a model is missing or wrong.

    Attributes:
        source: the file, or the argument, that has the description.
        field: what is wrong in it, as ``inputs[0].dtype``; empty: all of it.
    """

    def __init__(self, source: str, field: str, message: str) -> None:
        super().__init__(f"{source}: {field}{' ' if field else ''}{message}")
        self.source = source
        self.field = field
        self.message = message

    def __reduce__(self) -> tuple[type[SidecarError], tuple[str, str, str]]:
        return type(self), (self.source, self.field, self.message)


class ModelFileError(StreamerError, ValueError):
    """A file is no model, damaged, or compiled for another machine or device.

    Attributes:
        path: the file.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path} {message}")
        self.path = path
        self.message = message

    def __reduce__(self) -> tuple[type[ModelFileError], tuple[str, str]]:
        return type(self), (self.path, self.message)
