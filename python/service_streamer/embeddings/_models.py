"""What the streamer of an embedder runs: a list of items in, one row for each item out."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from .._base.messages import short, wrong_option
from ..onnx import OnnxModel
from ..torch import BatchedModel, NativeModel
from ._rows import FEATURES, array_of, pick, role_of
from ._tokenizer import Item, Tokenizer

_PROBES = ("One text", " Another one, which is LONGER.")
_OF_ENCODE = {"convert_to_numpy": True, "show_progress_bar": False}
_PACKED = ("cu_seqlens", "position_ids", "max_seqlen")
_NEAR = 0.01  # of the largest number: a GPU computes with few digits


class FileModel:
    """Runs an ONNX file or a native model, and pools its outputs for each token.

    Raises:
        ValueError: the model does not pad, or the file has other inputs than token ids, a mask and
            token types.
    """

    def __init__(self, model: OnnxModel | NativeModel, pooling: str) -> None:
        if not model.pads:
            raise wrong_option(
                f"{model!r} does not pad, so it would run the texts of each length by themselves: "
                "make it with collate='pad'"
            )
        self.model = model  # a streamer loads it
        self._pooling = pooling
        is_dict = isinstance(model, OnnxModel) or model.signature.input_structure == "dict"
        self._as: Callable[..., Any] = dict if is_dict else _values
        self._inputs: list[tuple[str, str, Any]] = [
            (each.name, role_of(each.name), np.dtype(each.dtype)) for each in _inputs_of(model)
        ]
        if [role for _, role, _ in self._inputs].count("ids") != 1:
            raise wrong_option(
                f"{model!r} has the inputs {', '.join(name for name, *_ in self._inputs)}: an "
                "encoder has token ids, and perhaps a mask (*mask*) and token types (*type*)"
            )

    def __call__(self, items: Sequence[Item]) -> list[Any]:
        """Return a row or an exception for each item."""
        rows: Any = self.model([self._form(*item) for item in items])
        return [self._pooled(row, len(item[0])) for row, item in zip(rows, items, strict=True)]

    def _form(self, ids: Any, types: Any) -> Any:
        types = np.zeros_like(ids) if types is None else types
        by_role = {"ids": ids, "mask": np.ones_like(ids), "types": types}
        return self._as(
            {n: by_role[role].astype(kind, copy=False) for n, role, kind in self._inputs}
        )

    def _pooled(self, row: Any, count: int) -> Any:
        if isinstance(row, Exception):
            return row
        row = array_of(pick(row))
        if row.ndim < 2:
            return row
        if self._pooling == "mean":
            return row[:count].mean(0, dtype=np.float32)
        return row[0 if self._pooling == "cls" else count - 1].copy()  # not the whole batch


def _inputs_of(model: Any) -> list[Any]:
    """Return the inputs of a file that an item has."""
    if isinstance(model, OnnxModel):
        return list(model.inputs)
    return [each for each in model.signature.inputs if each.name not in model.generated]


def _values(form: dict[str, Any]) -> Any:
    values = tuple(form.values())
    return values if len(values) > 1 else values[0]


class TorchModel:
    """Runs a module of torch, or any function on batched tensors.

    Args:
        model: takes arguments by name: token ids first, and perhaps a mask and token types.
        tokenizer: knows what ids are padded with.
        pooling: "mean", "cls" or "last".
        collate: see `BatchedModel`.
        device: where it runs. None: where its parameters are.
        features: the model takes one dict.
        activation: is called with the rows.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        tokenizer: Tokenizer,
        pooling: str,
        collate: Any = "pad",
        device: str | None = None,
        features: bool = False,
        activation: Callable[[Any], Any] | None = None,
    ) -> None:
        from ._pooled import Pooled

        names = None if features else _arguments(model)
        self._has_types = names is None or "types" in names
        if names is not None and collate == "pack":
            BatchedModel(model, collate="pack")  # refuses a model without its arguments
            names |= dict(zip(_PACKED, _PACKED, strict=True))
        pads: Any = {"pad_value": {"ids": tokenizer.pad}, "mask": "mask"}
        self.model = BatchedModel(
            Pooled(model, names, pooling, activation).eval(),
            device=device,
            collate=collate,
            output="numpy",
            **(pads if collate == "pad" else {}),
        )

    def __call__(self, items: Sequence[Item]) -> Any:
        """Return a row or an exception for each item."""
        if not self._has_types:
            return self.model([{"ids": ids} for ids, _ in items])
        return self.model(
            [
                {"ids": ids, "types": np.zeros_like(ids) if types is None else types}
                for ids, types in items
            ]
        )


def _arguments(model: Callable[..., Any]) -> dict[str, str]:
    """Return the names of the arguments, by role. A model of transformers has many others."""
    usual = {role: FEATURES[role] for role in ("ids", "mask")}
    try:
        given = inspect.signature(getattr(model, "forward", model)).parameters.values()
    except (TypeError, ValueError):  # of C
        return usual
    known = [each for each in given if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
    needed = [each.name for each in known if each.default is each.empty]
    every = {each.name for each in known}
    names: dict[str, str] = {}
    for role, name in FEATURES.items():
        fitting = [name] if name in every else [each for each in needed if role_of(each) == role]
        if fitting:
            names[role] = fitting[0]
    return names if "ids" in names else usual


class TextModel:
    """Calls ``encode`` or ``predict`` of an object, which tokenizes itself."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call
        known: Collection[str] = ()
        with contextlib.suppress(TypeError, ValueError):  # of C
            known = inspect.signature(call).parameters
        self._options = {name: value for name, value in _OF_ENCODE.items() if name in known}
        self._has_size = "batch_size" in known

    def __call__(self, items: Sequence[Any]) -> Any:
        """Return a row for each text or pair."""
        size = {"batch_size": len(items)} if self._has_size else {}
        return self.call(list(items), **self._options, **size)


def parts_of(model: Any, max_length: int | None, truncate: bool) -> tuple[Any, Tokenizer] | None:
    """Return what runs a model of sentence-transformers on token ids, and its tokenizer.

    Two probes are answered in both ways. So prompts, and modules that need more, are noticed.

    Returns:
        None: the model has no such parts, or they answer otherwise than ``encode`` or ``predict``.
    """
    ranks = not hasattr(model, "encode")
    tokenizer = getattr(model, "tokenizer", None)
    module: Any = getattr(model, "model", None) if ranks else model
    if tokenizer is None or not callable(getattr(module, "forward", None)):
        return None
    for name in ("max_seq_length", "max_length"):
        max_length = getattr(model, name, None) if max_length is None else max_length
    try:
        own = Tokenizer(tokenizer, max_length, truncate, module)
        run = TorchModel(
            module,
            own,
            "mean",
            features=not ranks,
            activation=getattr(model, "activation_fn", None) if ranks else None,
        )
        probes = list(_PROBES)
        ours = np.stack(run(own.items(probes, probes[0] if ranks else None)))
        theirs = array_of(
            TextModel(model.predict)([(probes[0], each) for each in probes])
            if ranks
            else TextModel(model.encode)(probes)
        ).reshape(len(probes), -1)
        same = np.abs(ours - theirs).max() <= _NEAR * np.abs(theirs).max()
    except Exception:
        return None
    return (run, own) if same else None


def load(model: Any, pad: int) -> Any:
    """Return a model, or that of the path of an ONNX file or a package, which pads its items.

    Args:
        model: or a path.
        pad: the id that token ids are padded with.
    """
    if isinstance(model, str | os.PathLike):
        kind: Any = OnnxModel if os.fspath(model).endswith(".onnx") else NativeModel
        made = kind(model, collate="pad")
        ids = [each.name for each in _inputs_of(made) if role_of(each.name) == "ids"]
        return made if pad == 0 else kind(model, collate="pad", pad_value=dict.fromkeys(ids, pad))
    if not callable(model):
        raise wrong_option(
            "model must be a module of torch, an OnnxModel, a NativeModel, the path of a file, or "
            f"have encode() or predict() if there is no tokenizer, not {short(model)}",
            TypeError,
        )
    return model
