"""model.toml: how the versions of a model are loaded."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from ..._base.messages import wrong_option
from ..._base.option_names import of_other_classes
from ..._base.options_file import OptionsFile
from ..._base.toml import TomlFile
from ..._models.model import is_managed
from ..._pipeline.kinds import kind_for
from ..._threads.threaded import ThreadedStreamer
from ...onnx import OnnxModel
from .._signature import Specs, specs_of, specs_of_file
from .._spec import LOADS, ModelSpec
from .._tensor_spec import parse_specs
from .plan import CanaryPlan

FILE = "model.toml"
_POLICY = re.compile(r"latest|latest:([1-9][0-9]*)|pinned:([0-9]+)")


@dataclasses.dataclass(frozen=True)
class ModelFile:
    """The contents of a model.toml."""

    model: str
    """"package.module:name", or the name of a .onnx, .pt2 or .pt file in the folder of a version"""
    policy: str = "latest"
    """"latest", "latest:2" (the newest two), or "pinned:3\""""
    warmup: list[Any] = dataclasses.field(default_factory=list)
    pin: bool = False
    load: str = "first_request"
    shared: bool = True
    """a `ManagedModel` may share a worker process, if the hub has ``workers``"""
    labels: dict[str, int] = dataclasses.field(default_factory=dict)
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    """the options of the streamer"""
    native: dict[str, Any] = dataclasses.field(default_factory=dict)
    """the options of the `NativeModel`"""
    onnx: dict[str, Any] = dataclasses.field(default_factory=dict)
    """the options of the `OnnxModel`"""
    canary: dict[str, Any] = dataclasses.field(default_factory=dict)
    """the arguments of `ModelHub.canary`"""
    inputs: dict[str, Any] = dataclasses.field(default_factory=dict)
    """the inputs by name, each with the fields of a `TensorSpec`"""
    outputs: dict[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> ModelFile:
        """Read and check a file.

        Raises:
            ValueError: it is invalid. The message names the file, and the line of the field.
            OSError: it cannot be read.
        """
        source = TomlFile.read(path)
        fields = {field.name: field for field in dataclasses.fields(cls)}
        for name, value in source.values.items():
            where = source.where("", name)
            if name not in fields:
                raise wrong_option(
                    f"{where}: unknown field {name!r}; known are {', '.join(fields)}"
                )
            default = fields[name].default_factory
            kind = type(default()) if callable(default) else type(getattr(cls, name, ""))
            if type(value) is not kind:
                raise wrong_option(f"{where}: {name} must be a {kind.__name__}, not {value!r}")
        if "model" not in source.values:
            raise wrong_option(f"{path}: the field 'model' is missing")
        file = cls(**source.values)
        if isinstance(tuned := file.options.get("options"), str):
            file.options["options"] = OptionsFile.of(path.parent / tuned)
        file._check(source)
        return file

    @property
    def canary_plan(self) -> CanaryPlan | None:
        """The canary that it asks for; None: it asks for none."""
        return CanaryPlan.of(self.canary) if self.canary else None

    def aspired(self, numbers: set[int], broken: set[int]) -> list[int]:
        """Return the versions that the policy asks for, the newest first.

        Those that cannot be loaded do not count, so there is an older one for each of them. A
        pinned version has no substitute.
        """
        found = _POLICY.fullmatch(self.policy)
        assert found is not None
        if found[2] is not None:
            return sorted(numbers & {int(found[2])})
        left = int(found[1] or 1)
        wanted = []
        for number in sorted(numbers, reverse=True):
            if left == 0:
                break
            wanted.append(number)
            left -= number not in broken
        return wanted

    def spec(self, folder: Path) -> ModelSpec:
        """Return the spec of the version in a folder.

        Raises:
            Exception: the module of the model cannot be imported, or an option is invalid.
        """
        rest: dict[str, Any] = {
            "warmup": self.warmup,
            "pin": self.pin,
            "load": self.load,
            "inputs": parse_specs("inputs", self.inputs),
            "outputs": parse_specs("outputs", self.outputs),
        }
        if not _is_file(self.model):
            target = _import(self.model)
            if is_managed(target):
                options = dict(self.options)
                tuned = OptionsFile.of(options.get("options")).values
                kwargs = {**tuned, **options}.get("model_init_kwargs", {})
                options["model_init_kwargs"] = {**kwargs, "path": str(folder)}
                return ModelSpec(target, **rest, **options, shared=self.shared)
            if not callable(target):
                raise TypeError(f"{self.model} is not callable")

        def make() -> ThreadedStreamer:
            if _is_onnx(self.model):
                model: Any = OnnxModel(folder / self.model, **self.onnx)
            elif _is_file(self.model):
                from ...torch import NativeModel  # requires torch

                model = NativeModel(folder / self.model, **self.native)
            else:
                model = target(str(folder))
            tuned = OptionsFile.of(self.options.get("options")).values
            model, own = spec.take_parameters(model, {**tuned, **self.options})
            return ThreadedStreamer(model, **{**self.options, **own})

        spec = ModelSpec.factory(make, **rest)
        spec.in_processes = False
        spec.takes_parameters = None
        if _is_file(self.model):
            spec.declare(*self._signature(folder))
        return spec

    def _signature(self, folder: Path) -> tuple[str, Specs, Specs]:
        """Return what a file tells. If it cannot be used, the load tells what is wrong."""
        from ...torch import SidecarError, Signature, read_sidecar

        if _is_onnx(self.model):
            with contextlib.suppress(Exception):
                return specs_of_file(OnnxModel(folder / self.model, **self.onnx))
            return specs_of(None, ())
        generated = (self.native.get("mask"), self.native.get("lengths"))
        try:
            if (given := self.native.get("signature")) is not None:
                return specs_of(Signature.from_dict(given, "signature"), generated)
            return specs_of(read_sidecar(folder / self.model), generated)
        except SidecarError:
            return specs_of(None, generated)

    def _check(self, source: TomlFile) -> None:
        def refuse(table: str, name: str, why: str) -> Exception:
            return wrong_option(f"{source.where(table, name)}: {why}")

        if not _is_file(self.model) and not re.fullmatch(r"[\w.]+:[\w.]+", self.model):
            raise refuse("", "model", f'model must be "package.module:name", or the name of a '
                         f".onnx, .pt2 or .pt file, not {self.model!r}")  # fmt: skip
        is_native = _is_file(self.model) and not _is_onnx(self.model)
        for table, fitting, fits in (
            ("native", "a .pt2 or .pt file", is_native),
            ("onnx", "a .onnx file", _is_onnx(self.model)),
        ):
            if getattr(self, table) and not fits:
                raise refuse("", table, f"[{table}] is for {fitting}, not for {self.model!r}")
        if not _POLICY.fullmatch(self.policy):
            raise refuse("", "policy", f'policy must be "latest", "latest:2" or "pinned:3", not '
                         f"{self.policy!r}")  # fmt: skip
        if self.load not in LOADS:
            raise refuse("", "load", f"load must be one of {', '.join(LOADS)}, not {self.load!r}")
        for label, number in self.labels.items():
            if type(number) is not int or not re.fullmatch(r"[A-Za-z_][\w.-]*", label):
                raise refuse("labels", label, f"a label is a name and the number of a version, not "
                             f"{label!r} = {number!r}")  # fmt: skip
        try:
            _ = self.canary_plan
        except (TypeError, ValueError) as error:
            raise refuse("", "canary", str(error).partition("\n")[0]) from None
        for table, tensors in (("inputs", self.inputs), ("outputs", self.outputs)):
            try:
                parse_specs(table, tensors)
            except ValueError as error:
                raise refuse("", table, str(error).partition("\n")[0]) from None
        managed = not _is_file(self.model) and is_managed(_import(self.model))
        kind = kind_for(_import(self.model)) if managed else ThreadedStreamer
        known = list(inspect.signature(kind).parameters)[1:]
        tuned = OptionsFile.of(self.options.get("options"))
        tuned = tuned.without(of_other_classes(tuned, known))
        for name in (*tuned.values, *self.options):
            if name not in known or name == "warmup":
                where = tuned.where(name) if name in tuned.values else source.where("options", name)
                raise wrong_option(f"{where}: {kind.__name__} has no option {name!r} here")
        if "batch_size" not in {**tuned.values, **self.options}:
            raise wrong_option(f"{source.path}: the option 'batch_size' is missing in [options]")


def _is_file(model: str) -> bool:
    return re.fullmatch(r"[\w-][\w.-]*\.(pt2?|onnx)", model) is not None


def _is_onnx(model: str) -> bool:
    return _is_file(model) and model.endswith(".onnx")


def _import(model: str) -> Any:
    module, _, name = model.partition(":")
    try:
        target: Any = importlib.import_module(module)
    except SystemExit as error:  # it would end the application
        raise ImportError(f"{module} calls exit({error.code!r}) when it is imported") from error
    for part in name.split("."):
        target = getattr(target, part)
    return target
