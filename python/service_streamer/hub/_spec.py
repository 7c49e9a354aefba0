"""ModelSpec: describes one model of a hub."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from .._base import options as _options
from .._base.errors import RequestTimeout
from .._base.option_names import fitting, unknown_option
from .._base.options import Options
from .._base.options_file import OptionsFile
from .._models.model import Model, check_model, is_managed, makes_steps
from .._models.native import NativeSource
from .._models.parameters import grouped_by_parameters, parametrized, takes_parameters
from .._pipeline.kinds import kind_for
from .._processes.streamer import Streamer
from ..extend import BaseStreamer, view_of
from ..onnx import OnnxModel
from ._sharing.worker import MOST_ITEMS
from ._signature import Specs, specs_of, specs_of_file
from ._tensor_spec import TensorSpec, check_specs

LOADS = ("first_request", "start")

SHARED_OPTIONS = {"batch_size", "model_init_args", "model_init_kwargs", "worker_timeout", "warmup"}
"""the options of a model that may share a worker process"""


class Environment(Protocol):
    """The Python environment of worker processes."""

    @property
    def is_made(self) -> bool:
        """True if it need not be made."""

    def prepare(
        self, begin: Callable[[Any], None], tell: Callable[[str], None]
    ) -> Callable[[], None]:
        """Make it if it is missing. Blocks.

        Args:
            begin: called with an object whose `close` ends that.
            tell: called with a line about the progress.

        Returns:
            A function to call when it is not used any more.
        """


class ModelSpec:
    """How a model of a `ModelHub` is loaded: what runs it, and with which options.

    ============================================  ==================================
    target                                        runs in
    ============================================  ==================================
    a `ManagedModel` class                        worker processes (`Streamer`)
    a function, with ``processes=True``           worker processes
    a function or another callable                threads of this process
    a `service_streamer.onnx.OnnxModel`           threads of this process
    a `service_streamer.torch.NativeModel`        its own C++ threads
    a `StepModel` object                          a thread of this process
    ============================================  ==================================

    The hub makes the streamer when it loads the model. A callable object exists before that, and
    its memory is not freed when the model is unloaded. `factory` makes it at each load.

    Args:
        target: the model.
        warmup: items that the model predicts before its first request.
        pin: the hub never unloads the model to make room for another.
        load: "first_request", or "start": when the hub is created.
        processes: run a function in worker processes.
        shared: if the hub has ``workers``, run the model in one of them, with other models. A
            `StepModel`, a ``batch_size`` above 1,024, and options other than ``batch_size``,
            ``model_init_args``, ``model_init_kwargs`` and ``worker_timeout`` still mean a process
            of its own.
        inputs: what the `server` checks and tells of the inputs, by name. An item is the row of the
            one input, or a dict of rows by name. None: as the signature of a native model or an
            ONNX file says, or one input of any name, datatype and shape.
        outputs: the same for the outputs.
        **options: of the `Streamer` or `ThreadedStreamer`, also ``options``, a TOML file with
            them. ``batch_size`` is required.

    Raises:
        TypeError, ValueError: an argument is invalid. The options are checked at each load.

    Example:
        >>> spec = ModelSpec(sorted, warmup=[1, 2], load="start", batch_size=64, max_latency=0.01)
        >>> with ModelHub({"sorted": spec}) as hub:
        ...     hub.predict("sorted", [1, 2])
        [1, 2]
    """

    def __init__(
        self,
        target: Any,
        *,
        warmup: Sequence[Any] = (),
        pin: bool = False,
        load: str = "first_request",
        processes: bool = False,
        shared: bool = True,
        inputs: Mapping[str, TensorSpec] | None = None,
        outputs: Mapping[str, TensorSpec] | None = None,
        **options: Any,
    ) -> None:
        if isinstance(target, BaseStreamer):
            raise TypeError(f"{target!r} is a streamer: pass a function, ModelSpec.factory(make)")
        kind = kind_for(target, processes)
        signature = inspect.signature(kind)
        accepted = [*signature.parameters][1:]
        file = fitting(OptionsFile.of(options.get("options")), accepted, kind.__name__)
        options["options"] = file
        every = {**file.values, **options}
        with file.blamed(file.values.keys() - options.keys()):
            for name, value in every.items():
                if name not in signature.parameters:
                    raise unknown_option("ModelSpec", name, value, accepted)
            signature.bind(target, **every)  # TypeError: batch_size is missing
            known = {"batch_size", "worker_timeout", "output"}
            self.options = Options(**{name: every[name] for name in known & every.keys()})
        target, own = self.take_parameters(target, every)
        options |= own
        every |= own
        warmup = warmup or file.values.get("warmup", ())
        self.in_processes = issubclass(kind, Streamer)
        if self.in_processes:
            every["warmup"] = options["warmup"] = list(warmup)  # each worker runs it
        self._make: Callable[[], BaseStreamer] = lambda: kind(target, **options)
        self._settle(warmup, pin, load, inputs, outputs)
        if isinstance(target, NativeSource):
            self.declare(*specs_of(target.signature, target.generated))
        elif isinstance(target, OnnxModel):
            self.declare(*specs_of_file(target))
        _options.flag("shared", shared)
        may_share = shared and self.in_processes and not makes_steps(target)
        alike = every.keys() <= {*SHARED_OPTIONS, "options"}
        if may_share and alike and self.options.batch_size <= MOST_ITEMS:
            names = ("model_init_args", "model_init_kwargs", "warmup")
            self.shared = check_model(target, *(every.get(name) for name in names))

    @classmethod
    def factory(
        cls,
        make: Callable[[], BaseStreamer],
        *,
        warmup: Sequence[Any] = (),
        pin: bool = False,
        load: str = "first_request",
        inputs: Mapping[str, TensorSpec] | None = None,
        outputs: Mapping[str, TensorSpec] | None = None,
    ) -> ModelSpec:
        """Describe a model by a function that makes its streamer, such as a `RedisStreamer`.

        Args:
            make: takes no arguments. Called in a thread of the hub, at each load. The hub closes
                the streamer.
            warmup, pin, load, inputs, outputs: as for `ModelSpec`.
        """
        if not callable(make):
            raise TypeError(f"make must be a function, not {make!r}")
        spec = cls.__new__(cls)
        spec.in_processes = None
        spec._make = make
        spec._settle(warmup, pin, load, inputs, outputs)
        spec.options = Options(batch_size=128)  # until it is loaded
        return spec

    in_processes: bool | None
    """the model runs in worker processes; None: known when it is loaded"""
    shared: Model | None = None
    """the model for a worker process that other models share; None: it must not be shared"""
    environment: Environment | None = None
    """the environment of its workers; None: that of this process"""
    load_timeout: float | None = None
    """seconds in which its workers have to load the model; None: no limit"""
    has_modules = False
    """modules in this process are freed with the streamer"""
    code_stamp: int | None = None
    """changes with the code in the folder of the version; None: there is none"""
    takes_parameters: bool | None = False
    """the model gets the parameters of requests; None: known when it is loaded"""
    item_structure: str | None = None
    """the form of an item of a native model or an ONNX file: "tensor", "tuple", "dict", or "native"
    if its signature is not known. None: another model, which gets its items in the usual form"""

    def take_parameters(
        self, target: Any, options: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Return the model, and the options that its streamer needs if it takes parameters.

        Args:
            target: the model: a function, or a `ManagedModel` class.
            options: of its streamer.
        """
        managed = is_managed(target)
        self.takes_parameters = takes_parameters(target.predict if managed else target)
        if not self.takes_parameters:
            return target, {}
        return target if managed else parametrized(target), grouped_by_parameters(options)

    def _settle(
        self,
        warmup: Sequence[Any],
        pin: bool,
        load: str,
        inputs: Mapping[str, TensorSpec] | None,
        outputs: Mapping[str, TensorSpec] | None,
    ) -> None:
        _options.one_of("load", load, LOADS)
        self.pin = pin
        self.load = load
        self._warmup = list(warmup)
        self.inputs = check_specs("inputs", inputs)
        self.outputs = check_specs("outputs", outputs)

    def declare(self, structure: str, inputs: Specs, outputs: Specs) -> None:
        """Take what is not declared from the signature of a native model, or from an ONNX file.

        Args:
            structure: of an item, as `item_structure`.
            inputs: of the model; empty: they are not known.
            outputs: the same.
        """
        self.item_structure = structure
        self.inputs = self.inputs or inputs
        self.outputs = self.outputs or outputs

    def _wait_loaded(self, streamer: BaseStreamer, timeout: float | None) -> None:
        try:
            streamer.wait_ready(timeout)
        except RequestTimeout:
            raise TimeoutError(
                f"its worker processes have not loaded it within {timeout:g} s, and were killed: "
                "its import or init_model hangs, or takes longer than load_timeout in model.toml"
            ) from None

    def make_streamer(
        self,
        note: Callable[[BaseStreamer], None],
        make: Callable[[], BaseStreamer] | None = None,
    ) -> BaseStreamer:
        """Make the streamer, load the model and warm it up. Blocks.

        Args:
            note: called with the streamer before it is ready.
            make: makes the streamer instead, in a shared worker process.

        Raises:
            TypeError, ValueError: an option is invalid.
            Exception: any exception of the model.
        """
        streamer = (make or self._make)()
        if not isinstance(streamer, BaseStreamer):
            raise TypeError(f"the function of ModelSpec.factory must return a streamer, "
                            f"not {streamer!r}")  # fmt: skip
        try:
            note(streamer)
            view = view_of(streamer)
            if view.needs_worker:
                self._wait_loaded(streamer, self.load_timeout if make is None else None)
            if not self.in_processes:
                step = view.options.batch_size
                for start in range(0, len(self._warmup), step):
                    streamer.submit(self._warmup[start : start + step]).result()
        except BaseException:
            streamer.close(drain=False, timeout=0)
            raise
        return streamer
