"""The model of a worker process: validation, pickling and loading."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_origin

from .._base.errors import SerializationError
from .._base.loadable import loadables
from .._base.messages import made_by_user, see, short, warn, wrong_option
from .._engine.pickling import main_has_no_file
from .._streamers.requests import Requests
from ..managed_model import ManagedModel
from .parameters import parametrized
from .step_model import StepModel

AnyModel = Callable[[list[Any]], Any] | type[ManagedModel]
"""a model for worker processes"""


@dataclasses.dataclass(frozen=True)
class Model:
    """A predict function, or a `ManagedModel` class and the arguments of its ``init_model``."""

    source: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    warmup: tuple[Any, ...] = ()
    """items that a worker predicts before its first request"""

    def load(self, device: int | str | None, batch_size: int) -> Any:
        """Load the model in the worker, run the warm-up, and return its predict function.

        A `StepModel` itself is returned.
        """
        if is_managed(self.source):
            managed = self.source(device)
            managed.init_model(*self.args, **self.kwargs)
            if makes_steps(managed):
                from .steps import warm_up  # only needed here

                warm_up.run(managed, self.warmup, batch_size)
                return managed
            predict = managed.predict
        else:
            predict = self.source
        for part in loadables(predict):
            part.load()
        predict = whole(parametrized(predict))
        for start in range(0, len(self.warmup), batch_size):
            predict(list(self.warmup[start : start + batch_size]))
        return predict

    @property
    def name(self) -> str:
        """The name of the model in messages."""
        return name_of(self.source)


def check_model(source: Any, args: Any, kwargs: Any, warmup: Any) -> Model:
    """Validate the model arguments of a streamer.

    Raises:
        TypeError: an argument has the wrong type. The message names it.
    """
    if makes_steps(source) and not is_managed(source):
        raise no_model(
            f"worker processes load a StepModel themselves: pass the class {name_of(source)}, not "
            "an instance"
        )
    if not is_managed(source):
        check_callable(source, "predict_function_or_model")
    return Model(
        source,
        tuple(_sequence("model_init_args", args)),
        _mapping("model_init_kwargs", kwargs),
        tuple(_sequence("warmup", warmup)),
    )


def check_callable(given: Any, name: str, may_be_async: bool = False) -> Callable[[list[Any]], Any]:
    """Validate a predict function; raise TypeError, naming the argument `name`."""
    if not may_be_async and is_async(given):
        raise no_model(
            f"{name} must be an ordinary function, but {name_of(given)} is async: callers can "
            "await `apredict` of any streamer, and a ThreadedStreamer also runs async functions"
        )
    if isinstance(given, Requests):
        raise no_model(f"{name} must be a function, not a streamer: {given!r}")
    if not callable(given):
        text = f"{name} must be callable, not the {type(given).__name__} {short(given)}"
        has_predict = callable(getattr(given, "predict", None))
        raise no_model(f"{text}: pass its predict method" if has_predict else text)
    return given  # type: ignore[no-any-return]


def no_model(text: str) -> TypeError:
    """Return the error of what cannot be a model; the message has the remedy."""
    return TypeError(see(text, "a-model-that-cannot-be-called"))


def warn_of_single_items(source: Any, batch_size: int, worker_num: int) -> None:
    """Warn, at the user's line, if a model of one worker gets its items one by one.

    Called by constructors. Several workers are a reason for that, and so are streams and steps.
    """
    if batch_size != 1 or worker_num != 1 or makes_steps(source) or not made_by_user():
        return
    if not _streams(source.predict if is_managed(source) else source):
        warn(
            see(
                f"batch_size=1: {name_of(source)} gets one item at a time, so no batches are "
                "formed; choose what fits into memory, such as batch_size=64",
                "batch_size1",
            )
        )


def whole(predict: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Return the model as one that returns all outputs, also if it is a generator function."""
    if _streams(predict):
        from .._streams.running import Collecting  # imported only for a model that streams

        return Collecting(predict)
    return predict


def is_async(predict: Any) -> bool:
    """Return True for a coroutine function, and for an async generator function."""
    call = getattr(type(predict), "__call__", None)  # noqa: B004
    return streams_async(predict) or any(map(inspect.iscoroutinefunction, (predict, call)))


def streams_async(predict: Any) -> bool:
    """Return True for an async generator function."""
    call = getattr(type(predict), "__call__", None)  # noqa: B004
    return any(map(inspect.isasyncgenfunction, (predict, call)))


def _streams(predict: Callable[[list[Any]], Any]) -> bool:
    call = getattr(type(predict), "__call__", None)  # noqa: B004
    inner = inspect.unwrap(predict)  # a decorator may hide the generator function
    return any(map(inspect.isgeneratorfunction, (predict, call, inner)))


def is_managed(source: Any) -> bool:
    """Return True for a subclass of `ManagedModel`, also one with type parameters."""
    return _is_subclass(source, ManagedModel)


def makes_steps(source: Any) -> bool:
    """Return True for a `StepModel`, and for a subclass of it."""
    return isinstance(source, StepModel) or _is_subclass(source, StepModel)


def _is_subclass(source: Any, kind: type) -> bool:
    source = get_origin(source) or source
    return isinstance(source, type) and issubclass(source, kind)


def name_of(source: Any) -> str:
    """Return the name of a function or class, or the class name of an object."""
    if isinstance(source, functools.partial):
        return name_of(source.func)
    return str(getattr(source, "__qualname__", type(source).__qualname__))


def pack(model: Model) -> bytes:
    """Pickle the model for a new interpreter, with cloudpickle if needed and installed.

    Raises:
        SerializationError: it cannot be pickled. The message says what to change.
    """
    try:
        packed = pickle.dumps(model, pickle.HIGHEST_PROTOCOL)
        reason = _unreachable_main(packed)
    except Exception as error:
        packed, reason = b"", error
    if reason is None:
        return packed
    try:
        from .session_model import dumps  # needs cloudpickle

        return dumps(model)
    except ImportError:
        remedy = "define it at the top level of a module, or `pip install cloudpickle`"
    except Exception as error:
        reason = error
        remedy = "create what it refers to in `init_model` of a ManagedModel, in the worker"
    what = f"{model.name} cannot be sent to a worker process"
    if guilty := guilty_part(model):
        what += f", because {guilty} cannot be pickled"
    text = f'{what} ({type(reason).__name__}: {reason}): {remedy}, or use mp_start_method="fork"'
    raise SerializationError(see(text, "a-model-that-does-not-pickle")) from reason


def guilty_part(model: Model) -> str:
    """Return what of the model cannot be pickled, or "" if it is unknown: for the message."""
    parts = {
        "": model.source,
        "model_init_args": model.args,
        "model_init_kwargs": model.kwargs,
        "warmup": model.warmup,
    }
    from .unpicklable import find_guilty  # imported for the message

    with contextlib.suppress(Exception):  # the objects of the user may raise
        return find_guilty(parts)
    return ""


def _unreachable_main(packed: bytes) -> Exception | None:
    """Return the reason why a worker cannot import the main module, or None."""
    if b"__main__" not in packed or not main_has_no_file():
        return None
    return AttributeError("it is defined in a main module that has no file")


def _sequence(name: str, value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
        raise wrong_option(f"{name} must be a list or tuple, not {value!r}", TypeError)
    return value


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise wrong_option(f"{name} must be a dict with str keys, not {value!r}", TypeError)
    return dict(value)
