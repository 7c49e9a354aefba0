"""The process of `LargeJson`: from JSON to arrays and items, as bytes of pickle."""

from __future__ import annotations

import gc
import os
import pickle
import signal
from collections.abc import Callable, Mapping
from typing import Any

from .._errors import InvalidInput
from .._items import Specs, items_of_instances
from .._tensors import from_json
from .json_values import parse_object
from .large_json import read, write
from .messages import Refused
from .tf_serving import instances_of, parsed

MAX_VALUES = 1 << 20  # numbers, texts and lists of one body that become objects of Python
_PIECE = 1 << 15  # of these at a time, unless one item has more
_TEXT = 8  # a text costs as much as so many numbers


def main() -> None:
    """Answer requests until there are none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the server
    gc.disable()  # there are no circles, and many objects
    reader, writer = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anybody prints
    while True:
        try:
            job, text = read(reader)
        except EOFError:
            return
        kind, *arguments = pickle.loads(job)
        try:
            parts = _JOBS[kind](text, *arguments)
        except InvalidInput as error:
            parts = [b"400", str(error).encode(errors="replace")]
        except RecursionError:  # of pickle
            parts = [b"400", b"the body is nested too deeply"]
        except Refused as error:
            parts = [str(error.status).encode(), str(error).encode()]
        else:
            parts.insert(0, b"")
        write(writer, *parts)


def _infer(text: bytes) -> list[bytes]:
    request = parse_object(text)
    inputs = request.get("inputs")
    _check(_weight({name: value for name, value in request.items() if name != "inputs"}))
    _check(len(inputs) if type(inputs) is list else 0)
    weight = 0
    for each in inputs if type(inputs) is list else ():
        if type(each) is dict and "data" in each:
            name, datatype, shape = each.get("name"), each.get("datatype"), each.get("shape")
            array = each["data"] = from_json(name, datatype, shape, each["data"]).array
            weight += _TEXT * array.size if array.dtype.kind == "O" else 0
        weight += _weight(each)
        _check(weight)
    return [_dump(request)]


def _predict(
    text: bytes, fields: tuple[str, ...], specs: Specs, structure: str | None
) -> list[bytes]:
    name, instances = instances_of(parsed(text, *fields))
    found = items_of_instances(instances, specs, structure)
    pieces: list[bytes] = [_dump((name, found.rank))]
    piece: list[Any] = []
    size = total = 0
    for item in found.items:
        weight = _weight(item)
        total += weight
        _check(total)
        if piece and size + weight > _PIECE:
            pieces.append(_dump(piece))
            piece, size = [], 0
        piece.append(item)
        size += weight
    pieces.append(_dump(piece))
    return pieces


_JOBS: dict[str, Callable[..., list[bytes]]] = {"infer": _infer, "predict": _predict}


def _check(weight: int) -> None:
    if weight > MAX_VALUES:
        advice = "send the binary form, or several requests"
        raise Refused(413, f"the body has more than {MAX_VALUES} values: {advice}")


def _weight(value: Any) -> int:
    """Return about how many objects of Python a value has. Stops at `MAX_VALUES`."""
    total = 0
    left = [value]
    while left and total <= MAX_VALUES:
        each = left.pop()
        if isinstance(each, Mapping):
            total += 1 + _TEXT * len(each)
            left.extend(each.values())
        elif type(each) in (list, tuple):
            kinds = set(map(type, each))
            total += 1
            if kinds <= {int, float, bool, type(None)}:
                total += len(each)
            else:
                left.extend(each)
        else:
            total += _TEXT if type(each) in (str, bytes) else 1
    return total


def _dump(value: Any) -> bytes:
    return pickle.dumps(value, protocol=5)


if __name__ == "__main__":
    main()
