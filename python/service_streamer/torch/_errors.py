"""The exceptions of native models.

::

    StreamerError
    ├── CompileError         the module cannot be compiled, or the result cannot be loaded
    │   ├── DimensionFixed   a dimension that must vary is fixed in the compiled model
    │   └── AnswersDiffer    the outputs of the compiled model differ from those of the module
    ├── SidecarError         the description of a model is missing or wrong (also a ValueError)
    └── ModelFileError       the file is not a model for this machine (also a ValueError)
"""

from __future__ import annotations

from typing import Any

from .._base.errors import StreamerError


class CompileError(StreamerError):
    """The module could not be compiled; torch's own exception is the cause.

    Example:
        >>> import torch
        >>> class Counts(torch.nn.Module):
        ...     def forward(self, numbers):
        ...         return torch.ones(len([number for number in numbers.tolist() if number > 0]))
        >>> compile(Counts().eval(), torch.ones(4), "counts.pt2", max_batch=8)
        Traceback (most recent call last):
        service_streamer.torch.CompileError: ...
    """


class DimensionFixed(CompileError):
    """A dimension that must vary has a fixed size in the compiled model.

    Attributes:
        input: the name of the input.
        dimension: the index of the dimension; 0 is the batch.
        size: the fixed size.

    Example:
        >>> import torch
        >>> class Fixed(torch.nn.Module):
        ...     def forward(self, numbers):
        ...         return numbers.reshape(4, 3) * 2
        >>> compile(Fixed().eval(), torch.ones(4, 3), "fixed.pt2", max_batch=8)
        Traceback (most recent call last):
        service_streamer.torch.DimensionFixed: dimension 0 of input 'numbers', ...
    """

    def __init__(self, input: str, dimension: int, size: int) -> None:
        meaning = "the batch" if dimension == 0 else "the sequence"
        super().__init__(
            f"dimension {dimension} of input {input!r}, {meaning}, is fixed to {size}: the module "
            "uses this size as a constant (len(), int(), `if`, .view(2, -1)), or it "
            "was exported without a dynamic dimension"
        )
        self.input = input
        self.dimension = dimension
        self.size = size

    def __reduce__(self) -> tuple[type[DimensionFixed], tuple[str, int, int]]:
        return type(self), (self.input, self.dimension, self.size)


class AnswersDiffer(CompileError):
    """The outputs of the compiled model differ from those of the module.

    Attributes:
        output: the name of the output that differs.
        batch: the size of the batch.
        length: the length of the sequences, or None if no input has one.
        difference: the largest absolute difference, or None if shape or type differ.

    Example:
        >>> import torch
        >>> class Noise(torch.nn.Module):
        ...     def forward(self, numbers):
        ...         return numbers + torch.rand_like(numbers)
        >>> compile(Noise().eval(), torch.ones(4, 3), "noise.pt", max_batch=8)
        Traceback (most recent call last):
        service_streamer.torch.AnswersDiffer: output '0' for a batch of ...
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
        source: the file, or the argument, with the description.
        field: the wrong field, like ``inputs[0].dtype``, or "" if no single field is wrong.

    Example:
        >>> read_sidecar("model.pt2")
        Traceback (most recent call last):
        service_streamer.torch.SidecarError: model.pt2.json: is missing, ...
    """

    def __init__(self, source: str, field: str, message: str) -> None:
        super().__init__(f"{source}: {field}{' ' if field else ''}{message}")
        self.source = source
        self.field = field
        self.message = message

    def __reduce__(self) -> tuple[type[SidecarError], tuple[str, str, str]]:
        return type(self), (self.source, self.field, self.message)


class ModelFileError(StreamerError, ValueError):
    """A file is not a model, is damaged, or was compiled for another machine or device.

    Attributes:
        path: the file.

    Example:
        >>> import torch
        >>> import pathlib
        >>> spec = TensorSpec("0", "float32", ("batch", 3))
        >>> signature = Signature((spec,), (spec,), "tensor", "tensor", 64, {"batch": (1, 64)})
        >>> size = pathlib.Path("model.pt2").write_bytes(b"no model")
        >>> NativeModel("model.pt2", signature=signature.to_dict())
        Traceback (most recent call last):
        service_streamer.torch.ModelFileError: model.pt2 ...
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path} {message}")
        self.path = path
        self.message = message

    def __reduce__(self) -> tuple[type[ModelFileError], tuple[str, str]]:
        return type(self), (self.path, self.message)
