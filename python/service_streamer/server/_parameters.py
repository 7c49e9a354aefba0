"""The parameters that the Open Inference Protocol and its servers define, and which are done here.

A parameter that is not done, or not known, is refused by its name: a client that sends one expects
another answer than it would get. Clients send some of them with the value that means "not so", and
some by themselves; these pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ._errors import InvalidInput
from ._tensors import shown

LONGEST = 8192  # characters of the parameters of a request
MOST = 1 << 23  # characters of those of all its items: each is pickled with its own copy

OF_REQUEST = {
    "timeout", "priority", "binary_data_output", "content_type",
    "headers",  # MLServer adds those of HTTP
    "triton_enable_empty_final_response",
}  # fmt: skip
OF_INPUT = {"binary_data_size", "content_type"}
OF_OUTPUT = {"binary_data", "content_type"}

_NOT_DONE = {
    "sequence_id", "sequence_start", "sequence_end", "classification",
    "shared_memory_region", "shared_memory_byte_size", "shared_memory_offset",
}  # fmt: skip
_CONTENT_TYPES = ("np", "nplist", "str", "raw", "hf", "pd")
"""of MLServer: those that only name what the tensors are. Others stand for values inside a text"""


def check_parameters(
    parameters: Mapping[str, Any], known: set[str], owner: str, others: Collection[str] = ()
) -> None:
    """Check the parameters of a request, or of one of its inputs or outputs.

    Args:
        parameters: None as a value means that there is no such parameter.
        known: their names.
        owner: what has them, for the message.
        others: more names.

    Raises:
        InvalidInput: a parameter is not supported. The message names it.
    """
    given = {name: value for name, value in parameters.items() if value is not None}
    wrong = [
        name
        for name in given
        if name not in known and name not in others and not (name in _NOT_DONE and not given[name])
    ]
    if wrong:
        raise refuse(wrong, owner)
    if (kind := given.get("content_type", "np")) not in _CONTENT_TYPES:
        raise InvalidInput(
            f"content_type {shown(kind)} of {owner} is not supported; supported are "
            f"{', '.join(_CONTENT_TYPES)}"
        )


def for_model(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a request that are its model's: no server defines them.

    Raises:
        InvalidInput: a value is none of the protocol, or they are too many.
    """
    found = {
        name: value
        for name, value in parameters.items()
        if value is not None
        and name not in OF_REQUEST
        and name not in _NOT_DONE
        and not name.startswith("triton_")
    }
    for name, value in found.items():
        if type(value) not in (str, int, float, bool):
            raise InvalidInput(
                f"the parameter {shown(name)} must be a string, a number or a bool, not "
                f"{shown(value)}"
            )
    if _characters(found) > LONGEST:
        raise InvalidInput(f"the parameters of the request have more than {LONGEST} characters")
    return found


def check_copies(parameters: Mapping[str, Any], items: int) -> None:
    """Check that the items of a request may bring its parameters along.

    Raises:
        InvalidInput: these would be copied too often.
    """
    characters = _characters(parameters)
    if items * characters > MOST:
        raise InvalidInput(
            f"{items} items with parameters of {characters} characters are more than {MOST} "
            f"characters; send at most {MOST // characters} items, or shorter parameters"
        )


def refuse(names: Iterable[str], owner: str) -> InvalidInput:
    """Return the error of parameters that are not done. It names them."""
    wrong = sorted(names)
    number = " is" if len(wrong) == 1 else "s are"
    return InvalidInput(
        f"the parameter{number} not supported: {', '.join(map(shown, wrong[:8]))} of {owner}"
    )


def natural(parameters: Mapping[str, Any], name: str) -> int | None:
    """Return a parameter that is an int of at least 0; None: it is not given.

    Raises:
        InvalidInput: it is something else.
    """
    value = parameters.get(name)
    if value is None or (type(value) is int and value >= 0):
        return value
    raise InvalidInput(f"{name} must be an int of at least 0, not {shown(value)}")


def flag(parameters: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """Return a parameter that is a bool.

    Raises:
        InvalidInput: it is something else.
    """
    value = parameters.get(name)
    if value is None:
        return default
    if type(value) is bool:
        return value
    raise InvalidInput(f"{name} must be true or false, not {shown(value)}")


def check_load_parameters(names: Iterable[str]) -> None:
    """Check the names of the parameters with which a client wants to load a model.

    Raises:
        InvalidInput: there is one. It would bring a configuration or files.
    """
    for name in names:
        raise InvalidInput(f"the parameter {shown(name)} is not supported: the folder of the model "
                           "has its configuration")  # fmt: skip


def check_unload_parameters(names: Iterable[str]) -> None:
    """Check the names of the parameters with which a client wants to unload a model.

    Raises:
        InvalidInput: one of them is not known. No model depends on another.
    """
    for name in names:
        if name != "unload_dependents":
            raise InvalidInput(
                f"the parameter {shown(name)} is not supported; supported is unload_dependents"
            )


def _characters(parameters: Mapping[str, Any]) -> int:
    return sum(len(name) + len(str(value)) for name, value in parameters.items())
