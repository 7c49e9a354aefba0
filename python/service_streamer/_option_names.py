"""The message about an option that a streamer does not have: which one has it, or what is meant."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection
from typing import Any, TypeVar, cast

from ._messages import no_such_option, short

Function = TypeVar("Function", bound=Callable[..., Any])

_KINDS = ("ThreadedStreamer", "Streamer", "RedisStreamer", "RedisWorker", "Pipeline")


def known_options(function: Function) -> Function:
    """Decorate a constructor or class method: the error of an unknown option has the remedy."""
    code = function.__code__
    known = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]

    @functools.wraps(function)
    def checked(owner: Any, /, *args: Any, **options: Any) -> Any:
        for name in options:
            if name not in known:
                kind = owner if isinstance(owner, type) else type(owner)
                method = "" if kind is not owner else f".{function.__name__}"
                raise unknown_option(f"{kind.__name__}{method}", name, options[name], known)
        return function(owner, *args, **options)

    return cast(Function, checked)


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
    import inspect  # only for a message

    return inspect.signature(getattr(sys.modules[__package__], kind)).parameters


def _closest(name: str, known: Collection[str]) -> str | None:
    """Return the name that is most like it, whatever the order of its words."""
    import difflib  # only for a message

    in_order = {"_".join(sorted(each.split("_"))): each for each in known}
    found = difflib.get_close_matches("_".join(sorted(name.split("_"))), in_order, 1)
    return in_order[found[0]] if found else None
