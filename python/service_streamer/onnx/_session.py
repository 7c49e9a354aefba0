"""Makes the session of ONNX Runtime."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._base.messages import missing_package, short, text_of, wrong_option
from .._base.model_errors import is_out_of_memory
from ..torch import ModelFileError

CPU = "CPUExecutionProvider"

Provider = str | tuple[str, Mapping[str, Any]]
SessionOptions = Mapping[str, Any] | Callable[[], Any]

_SPIN_US = "100"  # for which a thread of a session spins before it sleeps


def check_installed() -> None:
    """Check that numpy and onnxruntime are there, which takes long to import.

    Raises:
        ImportError: one is missing. The message has the remedy.
    """
    for name in ("numpy", "onnxruntime"):
        try:
            if importlib.util.find_spec(name) is None:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        except ImportError as error:
            raise missing_package(error, "onnx") from error


def check_providers(given: str | Sequence[Provider] | None) -> list[Any]:
    """Return the execution providers of a session: names, and pairs of a name and options.

    Raises:
        TypeError: it is something else.
        ValueError: the installed ONNX Runtime does not have one of them.
    """
    if given is None:
        return [CPU]
    wanted = [given] if isinstance(given, str) else given
    if not isinstance(wanted, list | tuple) or not all(map(_is_provider, wanted)):
        raise wrong_option(
            f"providers must be a list of names and of pairs (name, dict), not {short(given)}",
            TypeError,
        )
    import onnxruntime as runtime

    there = runtime.get_available_providers()
    for name in names_of(wanted):
        if name not in there:
            raise wrong_option(
                f"providers: onnxruntime {runtime.__version__} as it is installed has no {name!r}; "
                f"it has {', '.join(there)}"
            )
    if not wanted:
        raise wrong_option("providers must not be empty; None is the CPU")
    return [each if isinstance(each, str) else (each[0], dict(each[1])) for each in wanted]


def _is_provider(given: Any) -> bool:
    if isinstance(given, list | tuple) and len(given) == 2:
        return isinstance(given[0], str) and isinstance(given[1], Mapping)
    return isinstance(given, str)


def check_session_options(given: Any, threads: int | None) -> None:
    """Check what can be told without ONNX Runtime. `threads` is the option `intra_op_threads`.

    Raises:
        TypeError, ValueError: the options are something else, or give the threads again.
    """
    named = isinstance(given, Mapping) and all(isinstance(name, str) for name in given)
    if not (given is None or callable(given) or named):
        raise wrong_option(
            "session_options must be a dict, or a function that returns an "
            f"onnxruntime.SessionOptions, not {short(given)}",
            TypeError,
        )
    if named and threads is not None and "intra_op_num_threads" in given:
        raise wrong_option(
            f"intra_op_threads={threads} is given, and intra_op_num_threads in session_options, "
            "too: leave one out"
        )


def names_of(providers: Sequence[Any]) -> list[Any]:
    """Return the names of providers."""
    return [each if isinstance(each, str) else each[0] for each in providers]


def make_session(
    path: str, providers: list[Any], threads: int, given: SessionOptions | None
) -> tuple[Any, int]:
    """Load a model. Return its session, and the number of threads that compute a batch.

    Raises:
        ModelFileError: ONNX Runtime cannot load or run it. The message has the reason.
        ValueError: a session option is wrong.
        MemoryError: there is too little memory.
    """
    import onnxruntime as runtime

    options = given() if callable(given) else _options(runtime, given or {})
    if options.intra_op_num_threads == 0:
        options.intra_op_num_threads = threads
    _limit_spinning(runtime, options)
    try:
        session = runtime.InferenceSession(path, options, providers=providers)
    except MemoryError:
        raise
    except Exception as error:
        raise_memory_error(error)
        version = runtime.__version__
        reason = text_of(error).partition("\n")[0]
        raise ModelFileError(
            path, f"cannot be loaded by onnxruntime {version}: {reason}"
        ) from error
    for name in names_of(providers):
        if name not in session.get_providers():
            raise ModelFileError(
                path,
                f"cannot be run by {name}, which did not start; ONNX Runtime has logged the reason",
            )
    return session, options.intra_op_num_threads


def _limit_spinning(runtime: Any, options: Any) -> None:
    """Have threads that wait for work sleep soon; by default they spin for milliseconds."""
    knows_durations = tuple(map(int, runtime.__version__.split(".")[:2])) >= (1, 26)
    for pool in ("session.intra_op", "session.inter_op"):
        if _is_set(options, f"{pool}.allow_spinning"):
            continue
        if not knows_durations:
            options.add_session_config_entry(f"{pool}.allow_spinning", "0")
        elif not _is_set(options, f"{pool}.spin_duration_us"):
            options.add_session_config_entry(f"{pool}.spin_duration_us", _SPIN_US)


def _is_set(options: Any, name: str) -> bool:
    try:
        options.get_session_config_entry(name)
    except Exception:
        return False
    return True


def run_options() -> Callable[[], Any]:
    """Return what makes the options of one run."""
    import onnxruntime as runtime

    return runtime.RunOptions  # type: ignore[no-any-return]


def raise_memory_error(error: Exception) -> None:
    """Raise MemoryError if an exception of ONNX Runtime is about too little memory."""
    if not isinstance(error, MemoryError) and is_out_of_memory(error):
        raise MemoryError(str(error)) from error


def _options(runtime: Any, given: Mapping[str, Any]) -> Any:
    """Return the options of a session. A name with a dot is an entry of its configuration."""
    options = runtime.SessionOptions()
    for name, value in given.items():
        if "." in name:
            text = str(int(value) if isinstance(value, bool) else value)
            options.add_session_config_entry(name, text)
            continue
        try:
            kind = type(getattr(options, name))
            if isinstance(value, str) and hasattr(kind, "__members__"):
                value = kind.__members__[value]
            setattr(options, name, value)
        except (AttributeError, LookupError, TypeError) as error:
            raise wrong_option(
                f"session_options: {name}={value!r} is no option of onnxruntime.SessionOptions"
            ) from error
    return options
