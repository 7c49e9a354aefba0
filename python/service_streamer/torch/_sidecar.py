"""The signature of a compiled model, and the sidecar file that stores it.

An AOTInductor package does not check its inputs: wrong shapes give wrong results. Requests are
therefore checked against the signature. `compile` writes it to ``<model>.json``. Reading that file
does not need torch.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ._errors import SidecarError

FORMAT = 1  # of the file; other numbers are refused
BATCH = "batch"  # the name of dimension 0
SEQUENCE = "sequence"  # the name that `compile` gives to a dimension 1 that varies

INPUT_STRUCTURES = ("tensor", "tuple", "dict")
OUTPUT_STRUCTURES = ("tensor", "tuple", "list", "dict")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
DTYPES = (
    *("bool", *INTEGERS),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)

_FIELDS = (
    *("format", "torch", "isa", "device", "inputs", "outputs"),
    *("input_structure", "output_structure", "output_type", "max_batch", "dims"),
)
_OPTIONAL = ("torch", "isa", "output_type")


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """One input or output of a model.

    Example:
        >>> TensorSpec("ids", "int64", ("batch", "sequence")).shape
        ('batch', 'sequence')
    """

    name: str
    """an argument of the module, a key of a dict, or the index of an output ("0", "1", ...)"""
    dtype: str
    """torch's name of the type, like "float32" """
    shape: tuple[int | str | None, ...]
    """batch first. An int is fixed, a str is one of `dims`, None (outputs only) is unknown"""
    values: tuple[int, int] | None = None
    """the smallest and the largest number that an input of integers may have; None: not limited"""


@dataclasses.dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a model, in the order of the model.

    Example:
        >>> ids = TensorSpec("ids", "int64", ("batch", "sequence"))
        >>> vectors = TensorSpec("0", "float32", ("batch", 32))
        >>> sizes = {"batch": (1, 64), "sequence": (1, 512)}
        >>> signature = Signature((ids,), (vectors,), "tensor", "tensor", 64, sizes)
        >>> signature.device
        'cpu'
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    input_structure: str
    """the structure of an item: one of INPUT_STRUCTURES"""
    output_structure: str
    """the structure of the result: one of OUTPUT_STRUCTURES"""
    max_batch: int
    """the largest number of items in a batch"""
    dims: Mapping[str, tuple[int, int]]
    """the smallest and largest size of each named dimension"""
    device: str = "cpu"
    """the device type, like "cpu" or "cuda" """
    torch: str | None = None
    """the version of torch that compiled it"""
    isa: str | None = None
    """the required vector instructions, named like torch does; None: no requirement"""
    output_type: str | None = None
    """the class of a tuple of outputs, if torch has it, like "torch.return_types.topk" """

    def to_dict(self) -> dict[str, Any]:
        """The content of the file."""
        fields = dataclasses.asdict(self)
        for name in _OPTIONAL:
            if fields[name] is None:
                del fields[name]
        for tensor in (*fields["inputs"], *fields["outputs"]):
            if tensor["values"] is None:
                del tensor["values"]
        return {"format": FORMAT, **fields}

    @classmethod
    def from_dict(cls, given: Any, source: str) -> Signature:
        """Check the content of a file. Errors name `source`.

        Raises:
            SidecarError: a field is wrong. The message names the source, the field and the value.
        """
        return _Check(source).signature(given)


def sidecar_path(model: str | os.PathLike[str]) -> Path:
    """The path of the sidecar of a model."""
    return Path(f"{os.fspath(model)}.json")


def read_sidecar(model: str | os.PathLike[str]) -> Signature:
    """Read and check the sidecar of a model file.

    Raises:
        SidecarError: the sidecar is missing, cannot be read, or has a wrong field.

    Example:
        >>> import json, pathlib
        >>> spec = TensorSpec("0", "float32", ("batch", 3))
        >>> signature = Signature((spec,), (spec,), "tensor", "tensor", 64, {"batch": (1, 64)})
        >>> size = pathlib.Path("model.pt2.json").write_text(json.dumps(signature.to_dict()))
        >>> read_sidecar("model.pt2") == signature
        True
    """
    path = sidecar_path(model)
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SidecarError(
            str(path),
            "",
            "is missing, but it describes the inputs of the model: write it with "
            "service_streamer.torch.compile, or pass its content as signature=",
        ) from None
    except (OSError, ValueError) as error:
        raise SidecarError(str(path), "", f"cannot be read: {error}") from error
    return Signature.from_dict(given, str(path))


def write_sidecar(model: str | os.PathLike[str], signature: Signature) -> None:
    """Write the sidecar of a model file, for `read_sidecar`."""
    text = json.dumps(signature.to_dict(), indent=2)
    sidecar_path(model).write_text(f"{text}\n", encoding="utf-8")


class _Check:
    """Checks the fields of one sidecar."""

    def __init__(self, source: str) -> None:
        self._source = source

    def _demand(self, holds: bool, field: str, wanted: str, value: Any) -> None:
        if not holds:
            raise SidecarError(self._source, field, f"must be {wanted}, not {value!r}")

    def signature(self, given: Any) -> Signature:
        self._demand(isinstance(given, Mapping), "", "an object with fields", given)
        fields = dict(given)
        number = fields.pop("format", None)
        self._demand(
            number == FORMAT,
            "format",
            f"{FORMAT}, the only format that this version can read",
            number,
        )
        for name in fields:
            self._demand(name in _FIELDS, "fields", f"some of {', '.join(_FIELDS)}", name)
        for name in _FIELDS[1:]:
            if name not in fields and name not in _OPTIONAL:
                raise SidecarError(self._source, name, "is missing")
        for name in ("device", *_OPTIONAL):
            value = fields.get(name)
            optional = name in _OPTIONAL and value is None
            self._demand(optional or _is_name(value), name, "a string that is not empty", value)
        for name, known in (
            ("input_structure", INPUT_STRUCTURES),
            ("output_structure", OUTPUT_STRUCTURES),
        ):
            value = fields[name]
            self._demand(value in known, name, f"one of {', '.join(map(repr, known))}", value)
        kind = fields.get("output_type")
        self._demand(
            kind is None or (is_output_type(kind) and fields["output_structure"] == "tuple"),
            "output_type",
            "a class of torch.return_types, of outputs in a tuple",
            kind,
        )
        dims = self._dims(fields.pop("dims"))
        most = fields["max_batch"]
        self._demand(_is_size(most), "max_batch", "a number of items, at least 1", most)
        self._demand(
            dims[BATCH][0] <= most <= dims[BATCH][1], "max_batch", f"in dims.{BATCH}", most
        )
        tensors = {
            which: self._tensors(which, fields.pop(which), fields[structure], dims)
            for which, structure in (("inputs", "input_structure"), ("outputs", "output_structure"))
        }
        return Signature(dims=dims, **tensors, **fields)  # type: ignore[arg-type]

    def _dims(self, given: Any) -> dict[str, tuple[int, int]]:
        self._demand(
            isinstance(given, Mapping), "dims", "an object that maps names to ranges", given
        )
        self._demand(BATCH in given, "dims", f"an object with {BATCH!r}", given)
        for name, value in given.items():
            is_range = isinstance(value, list | tuple) and len(value) == 2
            if is_range:
                low, high = value
                is_range = _is_size(low) and _is_size(high) and low <= high
            wanted = "[smallest size, largest size]"
            self._demand(_is_name(name) and is_range, f"dims.{name}", wanted, value)
        return {name: (low, high) for name, (low, high) in given.items()}

    def _tensors(
        self, which: str, given: Any, structure: str, dims: Mapping[str, Any]
    ) -> tuple[TensorSpec, ...]:
        is_list = isinstance(given, list | tuple) and len(given) > 0
        self._demand(is_list, which, "a list of at least one tensor", given)
        if structure == "tensor":
            self._demand(
                len(given) == 1, which, "one tensor, because the structure is 'tensor'", len(given)
            )
        specs = tuple(
            self._tensor(f"{which}[{index}]", each, dims, others=which == "outputs")
            for index, each in enumerate(given)
        )
        names = [spec.name for spec in specs]
        self._demand(len(set(names)) == len(names), which, "tensors with different names", names)
        return specs

    def _tensor(
        self, field: str, given: Any, dims: Mapping[str, Any], *, others: bool
    ) -> TensorSpec:
        wanted = {"name", "dtype", "shape"}
        self._demand(
            isinstance(given, Mapping)
            and wanted <= set(given) <= (wanted if others else {*wanted, "values"}),
            field,
            "an object with name, dtype and shape",
            given,
        )
        name, dtype, shape = given["name"], given["dtype"], given["shape"]
        self._demand(_is_name(name), f"{field}.name", "a string that is not empty", name)
        self._demand(dtype in DTYPES, f"{field}.dtype", f"one of {', '.join(DTYPES)}", dtype)
        is_shape = isinstance(shape, list | tuple) and list(shape[:1]) == [BATCH]
        self._demand(is_shape, f"{field}.shape", f"a list that starts with {BATCH!r}", shape)
        for size in shape:
            known = size in dims if isinstance(size, str) else _is_size(size)
            self._demand(
                known or (size is None and others),
                f"{field}.shape",
                "a list of sizes and names of dims",
                shape,
            )
        values = given.get("values")
        if values is not None:
            self._demand(
                dtype in INTEGERS and _is_range(values),
                f"{field}.values",
                "[smallest number, largest number], of an input of integers",
                values,
            )
        return TensorSpec(name, dtype, tuple(shape), None if values is None else tuple(values))


def is_output_type(name: str) -> bool:
    """Whether a class has this name that every process with torch can make."""
    return name.startswith("torch.return_types.")


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_range(value: Any) -> bool:
    """Whether it is [low, high], both of 64 bits."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        return False
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in value):
        return False
    low, high = value
    return bool(-(1 << 62) < low <= high < 1 << 62)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""
