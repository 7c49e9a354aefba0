"""model.toml: how the versions of a model are loaded."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import os
import re
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from ..._base.messages import wrong_option
from ..._base.option_names import of_other_classes
from ..._base.options_file import OptionsFile
from ..._base.toml import TomlFile
from ..._models.code import FolderCode, import_target, source_files
from ..._models.model import is_managed
from ..._pipeline.kinds import kind_for
from ..._processes.streamer import Streamer
from ..._threads.threaded import ThreadedStreamer
from ...onnx import OnnxModel
from .._signature import Specs, specs_of, specs_of_file
from .._spec import LOADS, ModelSpec
from .._tensor_spec import parse_specs
from . import namespace
from .environments import Environment, interpreter_in
from .plan import CanaryPlan

FILE = "model.toml"
OF_MODEL = ("policy", "pin", "labels", "canary")
"""the fields that are for all versions of a model, so that a version's own file has none of them"""

_POLICY = re.compile(r"latest|latest:([1-9][0-9]*)|pinned:([0-9]+)")

_MODULE = re.compile(r"[\w.]+:[\w.]+")
_CODE = re.compile(r"[A-Za-z_]\w*\.py:[A-Za-z_][\w.]*")


@dataclasses.dataclass(frozen=True)
class ModelFile:
    """The contents of a model.toml."""

    model: str = ""
    """"package.module:name", or the name of a .onnx, .pt2 or .pt file in the folder of a version,
    or "model.py:name"; empty: each version has it in its own file"""
    policy: str = "latest"
    """"latest", "latest:2" (the newest two), or "pinned:3\""""
    warmup: list[Any] = dataclasses.field(default_factory=list)
    pin: bool = False
    load: str = "first_request"
    shared: bool = True
    """a `ManagedModel` may share a worker process, if the hub has ``workers``"""
    in_process: bool = False
    """the code of a version runs in this process"""
    steps: bool = False
    """the code of a version is a `StepModel`"""
    parameters: bool = False
    """the code of a version takes the parameters of requests"""
    python: str = ""
    """the interpreter of the workers, or its virtual environment; empty: that of this process"""
    environments: str = "none"
    """"auto": the workers have the packages that a list in the folder of the version names"""
    load_timeout: float = 600.0
    """seconds in which the workers have to load the model"""
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
    def read(cls, path: Path, common: ModelFile | None = None) -> ModelFile:
        """Read and check a file.

        Args:
            path: of the file. A model needs none if each version has its own.
            common: that of the model, if this one is of a version. What it sets holds here, too.

        Raises:
            ValueError: it is invalid. The message names the file, and the line of the field.
            OSError: it cannot be read.
        """
        is_alone = common is not None or not has_own(path.parent)
        if not is_alone and not os.path.lexists(path):
            return cls()
        source = TomlFile.read(path)
        fields = {field.name: field for field in dataclasses.fields(cls)}
        for name, value in source.values.items():
            where = source.where("", name)
            if name not in fields:
                raise wrong_option(
                    f"{where}: unknown field {name!r}; known are {', '.join(fields)}"
                )
            if common is not None and name in OF_MODEL:
                raise wrong_option(f"{where}: {name!r} is for the model.toml of all versions")
            default = fields[name].default_factory
            kind = type(default()) if callable(default) else type(getattr(cls, name, ""))
            if type(value) is not kind and (kind, type(value)) != (float, int):
                raise wrong_option(f"{where}: {name} must be a {kind.__name__}, not {value!r}")
        values = source.values
        if isinstance(tuned := values.get("options", {}).get("options"), str):
            values["options"]["options"] = OptionsFile.of(path.parent / tuned)
        if values.get("python"):
            values["python"] = str(path.parent / values["python"])
        for name, value in () if common is None else values.items():
            if isinstance(value, dict):
                values[name] = {**getattr(common, name), **value}
        file = cls(**values) if common is None else dataclasses.replace(common, **values)
        if not file.model and is_alone:
            raise wrong_option(f"{path}: the field 'model' is missing")
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

        If something in this folder is wrong, the load tells it, and other versions go on.

        Raises:
            Exception: the module of the model cannot be imported, or an option is invalid.
        """
        if not os.path.lexists(folder / FILE) and not self._is_apart:
            return self._spec(folder)
        try:
            file, folder = self, folder.absolute()
            if os.path.lexists(folder / FILE) or not self.model:
                file = ModelFile.read(folder / FILE, self)
            return file._spec(folder)
        except Exception as error:
            return _broken(error, self.load)

    @property
    def _is_apart(self) -> bool:
        """True: the model is not imported here, but from the folder of a version, or by workers."""
        return bool(_CODE.fullmatch(self.model) or self.python or self.environments == "auto")

    def _spec(self, folder: Path) -> ModelSpec:
        rest: dict[str, Any] = {
            "warmup": self.warmup,
            "pin": self.pin,
            "load": self.load,
            "inputs": parse_specs("inputs", self.inputs),
            "outputs": parse_specs("outputs", self.outputs),
        }
        environment = None
        if self.python:
            environment = Environment(
                folder, interpreter_in(Path(self.python)), timeout=self.load_timeout
            )
        elif self.environments == "auto":
            name = self.model.partition(":")[0]
            environment = Environment.of(folder, name, self.load_timeout)
        if _CODE.fullmatch(self.model) or environment is not None:
            return self._spec_of_code(folder, environment, rest)
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
            return _streamer(own, model, self.options)

        spec = ModelSpec.factory(make, **rest)
        own = weakref.ref(spec)  # which has `make`
        spec.in_processes = False
        spec.takes_parameters = None
        if _is_file(self.model):
            spec.declare(*self._signature(folder))
        return spec

    def _spec_of_code(
        self, folder: Path, environment: Environment | None, rest: dict[str, Any]
    ) -> ModelSpec:
        """Return the spec of a version whose code this process must not import by its name."""
        if self.in_process:
            options = dict(self.options)
            kwargs = options.pop("model_init_kwargs", {})

            def make() -> ThreadedStreamer:
                made = functools.partial(_streamer, own, options=options)
                return namespace.streamer_of(folder, self.model, kwargs, made)

            spec = ModelSpec.factory(make, **rest)
            own = weakref.ref(spec)
            spec.in_processes, spec.has_modules = False, True
            spec.takes_parameters = None
        else:
            python = "" if environment is None else environment.python
            code = FolderCode(str(folder), self.model, python, self.steps, self.parameters)
            spec = ModelSpec(code, processes=True, shared=False, **rest, **self.options)
            spec.environment, spec.load_timeout = environment, self.load_timeout
        facts = sorted((each, *_facts(Path(each))) for each in source_files(str(folder)))
        spec.code_stamp = hash(tuple(facts))
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

        is_code = _CODE.fullmatch(self.model) is not None
        if not (_is_file(self.model) or is_code or _MODULE.fullmatch(self.model) or not self.model):
            raise refuse("", "model", f'model must be "package.module:name", "model.py:name", or '
                         f"the name of a .onnx, .pt2 or .pt file, not {self.model!r}")  # fmt: skip
        self._check_code(refuse, is_code)
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
        if not self.model:
            return  # the files of the versions are checked instead
        kind = self._kind()
        known = list(inspect.signature(kind).parameters)[1:]
        if self.in_process:
            known.append("model_init_kwargs")
        tuned = OptionsFile.of(self.options.get("options"))
        tuned = tuned.without(of_other_classes(tuned, known))
        for name in (*tuned.values, *self.options):
            if name not in known or name == "warmup":
                where = tuned.where(name) if name in tuned.values else source.where("options", name)
                raise wrong_option(f"{where}: {kind.__name__} has no option {name!r} here")
        if "batch_size" not in {**tuned.values, **self.options}:
            raise wrong_option(f"{source.path}: the option 'batch_size' is missing in [options]")

    def _check_code(self, refuse: Callable[[str, str, str], Exception], is_code: bool) -> None:
        """Check the fields that are for code of a version."""
        if self.environments not in ("none", "auto"):
            raise refuse("", "environments", 'environments must be "none" or "auto", not '
                         f"{self.environments!r}")  # fmt: skip
        if self.load_timeout <= 0:
            raise refuse("", "load_timeout", "load_timeout must be more than 0 seconds, not "
                         f"{self.load_timeout}")  # fmt: skip
        own = self.python or self.environments == "auto"
        if self.python and self.environments == "auto":
            raise refuse(
                "", "python", 'python and environments = "auto" both choose: leave one out'
            )
        if own and (self.in_process or _is_file(self.model)):
            name = "python" if self.python else "environments"
            what = "in_process = true" if self.in_process else repr(self.model)
            raise refuse("", name, f"{name} is for worker processes that import the model, not for "
                         f"{what}")  # fmt: skip
        for name in ("in_process", "steps", "parameters"):
            if (
                getattr(self, name)
                and self.model
                and not (is_code or (own and name != "in_process"))
            ):
                raise refuse("", name, f'{name} is for code in the folder of a version, such as '
                             f'model = "model.py:name", not for {self.model!r}')  # fmt: skip
        method = self.options.get("mp_start_method", "spawn")
        if (is_code or own) and method != "spawn":
            raise refuse("options", "mp_start_method", f"mp_start_method must be 'spawn', not "
                         f"{method!r}: another process has modules of others")  # fmt: skip

    def _kind(self) -> type[Streamer] | type[ThreadedStreamer]:
        """Return the kind of streamer, whose options it has."""
        if self._is_apart:
            return ThreadedStreamer if self.in_process else Streamer
        managed = not _is_file(self.model) and is_managed(_import(self.model))
        return kind_for(_import(self.model)) if managed else ThreadedStreamer


def has_own(folder: Path) -> bool:
    """Return True if a version in the folder of a model has a file of its own."""
    return any(path.parent.name.isdecimal() for path in folder.glob(f"*/{FILE}"))


def _facts(path: Path) -> tuple[int, int]:
    about = path.lstat()
    return about.st_size, about.st_mtime_ns


def _streamer(
    own: Callable[[], ModelSpec | None], model: Any, options: Mapping[str, Any]
) -> ThreadedStreamer:
    """Return the streamer of a model of this process, also if it takes parameters.

    Args:
        own: returns the spec that makes it.
        model: of the streamer.
        options: of the streamer.
    """
    spec = own()
    assert spec is not None
    tuned = OptionsFile.of(options.get("options")).values
    model, more = spec.take_parameters(model, {**tuned, **options})
    return ThreadedStreamer(model, **{**options, **more})


def _broken(error: Exception, load: str) -> ModelSpec:
    """Return the spec of a version that cannot be loaded."""

    def make() -> NoReturn:
        raise error

    spec = ModelSpec.factory(make, load=load)
    spec.in_processes = False
    return spec


def _is_file(model: str) -> bool:
    return re.fullmatch(r"[\w-][\w.-]*\.(pt2?|onnx)", model) is not None


def _is_onnx(model: str) -> bool:
    return _is_file(model) and model.endswith(".onnx")


def _import(model: str) -> Any:
    module, _, name = model.partition(":")
    return import_target(module, name)
