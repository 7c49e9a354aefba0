"""The options of a constructor: those in a file, and the message about one that does not exist."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, cast

from . import options as _options
from .messages import no_such_option, short, wrong_option
from .options_file import OptionsFile
from .types import EngineOptions

_logger = logging.getLogger("service_streamer")

Function = TypeVar("Function", bound=Callable[..., Any])

_KINDS = (
    "ThreadedStreamer",
    "Streamer",
    "RedisStreamer",
    "RedisWorker",
    "RayStreamer",
    "Pipeline",
)


class_of: Callable[[str], Any] = dict[str, Any]().__getitem__
"""returns one of these classes; set by the package, which is above this module"""

REQUIRED: Any = inspect.Parameter.empty
"""the default of a ``batch_size`` that may be in a file; for `inspect` it has none"""


def known_options(function: Function) -> Function:
    """Decorate a constructor, a class method or a function that has options of a streamer.

    It reads the file that the call gives as ``options``. The call wins over the file. The error of
    an unknown option has the remedy.
    """
    signature = _with_engine_options(inspect.signature(function))
    parameters = signature.parameters
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = tuple(name for name, each in parameters.items() if each.kind not in variable)
    own = names[names[0] in ("self", "cls") :]
    sized = "batch_size" in own and parameters["batch_size"].default is REQUIRED
    in_files = own[1:] if sized else own  # without the model
    in_files = tuple(name for name in in_files if name != "options")
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())

    def check(options: Mapping[str, Any], known: Collection[str], args: tuple[Any, ...]) -> None:
        for name, value in options.items():
            if name not in known and (name in own or not takes_all):
                raise unknown_option(_owner(function, args), name, value, known)

    @functools.wraps(function)
    def checked(*args: Any, **given: Any) -> Any:
        file = OptionsFile.of(given.pop("options", None) if "options" in own else None)
        if not takes_all:
            file = fitting(file, in_files, _owner(function, args))
        taken = {*names[: len(args)], *given}
        added = {name: value for name, value in file.values.items() if name not in taken}
        with file.blamed(file.values):
            check(file.values, in_files, args)
        with file.blamed(added):
            check(given, own, args)
            if sized and "batch_size" not in taken and "batch_size" not in added:
                raise wrong_option(
                    f"{_owner(function, args)} needs batch_size, the most items of a batch: "
                    "give it, or as options= a file that has it",
                    TypeError,
                )
            return function(*args, **added, **given)

    public = [each for name, each in parameters.items() if name[0] != "_"]
    checked.__signature__ = signature.replace(parameters=public)  # type: ignore[attr-defined]
    return cast(Function, checked)


def _with_engine_options(signature: inspect.Signature) -> inspect.Signature:
    """Return the signature with the options that ``**engine: Unpack[EngineOptions]`` stands for.

    They begin where ``output`` is.
    """
    *own, last = signature.parameters.values()
    if last.annotation != f"Unpack[{EngineOptions.__name__}]":
        return signature
    named = {each.name for each in own if each.kind is each.KEYWORD_ONLY}
    named |= EngineOptions.__annotations__.keys()
    of_engine = {name: each for name, each in _options.parameters().items() if name in named}
    listed: list[inspect.Parameter] = []
    for each in own:
        if each.name == "output":
            listed += of_engine.values()
        elif each.name not in of_engine:
            listed.append(each)
    return signature.replace(parameters=listed)


def fitting(file: OptionsFile, known: Collection[str], owner: str) -> OptionsFile:
    """Return a file of a search without the options that only other classes have, and log them.

    Args:
        file: what the user has given.
        known: the names of the options of the class.
        owner: the name of the class.
    """
    others = of_other_classes(file, known)
    if not others:
        return file
    names = ", ".join(others)
    about = {"options_file": file.path, "left_out": names}
    _logger.info("%s: left out what %s does not have: %s", file.path, owner, names, extra=about)
    return file.without(others)


def of_other_classes(file: OptionsFile, known: Collection[str]) -> list[str]:
    """Return the names of the options in a file of a search that only other classes have.

    A search runs a `Streamer`. Its batches and its policy are good for the model in any class, but
    its workers and their threads are not in each. In other files such an option is a mistake.
    """
    if not file.is_tuned:
        return []
    others = [name for name in file.values if name not in known]
    return [name for name in others if any(name in _options_of(kind) for kind in _KINDS)]


def _owner(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """Return the name of the class or function, for a message."""
    if function.__name__ == function.__qualname__:
        return function.__name__
    kind = args[0] if isinstance(args[0], type) else type(args[0])
    return kind.__name__ if kind is not args[0] else f"{kind.__name__}.{function.__name__}"


def unknown_option(owner: str, name: str, value: Any, known: Collection[str]) -> TypeError:
    """Return the error for an option that does not exist.

    Args:
        owner: the name of the class or function.
        name: of the option.
        value: of the option.
        known: the names of its options.
    """
    others = [kind for kind in _KINDS if kind != owner and name in _options_of(kind)]
    if owner == "Pipeline" and {"ThreadedStreamer", "Streamer"}.intersection(others):
        others = ["Stage"]  # which takes the options of its streamer
    if others:
        remedy = f"it is an option of {', '.join(others)}"
    elif (meant := _closest(name, known)) is not None:
        remedy = f"did you mean {meant}?"
    else:
        remedy = f"its options are {', '.join(each for each in known if each[0] != '_')}"
    return no_such_option(f"{owner} has no option {name}={short(value)}: {remedy}")


def _options_of(kind: str) -> Collection[str]:
    return inspect.signature(class_of(kind)).parameters


def _closest(name: str, known: Collection[str]) -> str | None:
    """Return the name that is most like it, whatever the order of its words."""
    import difflib  # only for a message

    in_order = {"_".join(sorted(each.split("_"))): each for each in known}
    found = difflib.get_close_matches("_".join(sorted(name.split("_"))), in_order, 1)
    return in_order[found[0]] if found else None
