"""Exceptions of models, for the tests of their way to the callers. Workers import it, too."""

import asyncio
import concurrent.futures
import sys
import threading

from service_streamer import QueueFull
from service_streamer.server import InvalidInput


class OwnStop(StopIteration):
    pass


CONTROL = {
    "stop": StopIteration("the end", 2),
    "own-stop": OwnStop("the end"),
    "stop-async": StopAsyncIteration("the end"),
    "generator-exit": GeneratorExit("the end"),
    "cancelled": concurrent.futures.CancelledError("the end"),
    "task-cancelled": asyncio.CancelledError("the end"),
}
"""what loops, generators and tasks of a caller would take for an end of their own"""

EXITS = {"exit": SystemExit("the end"), "interrupt": KeyboardInterrupt("the end")}


class Coded(ValueError):
    """Its args are not those of its ``__init__``."""

    def __init__(self, code, *, detail):
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class Prefixed(ValueError):
    """Made from its args it would have another text."""

    def __init__(self, text, code=0):
        super().__init__(f"[{code}] {text}")
        self.code = code


class Silent(Exception):
    """Does not pass its arguments on."""

    def __init__(self, text, more):
        self.text = text
        self.more = more

    def __str__(self):
        return f"{self.text}: {self.more}"


class NoFile(OSError):
    def __init__(self, path):
        super().__init__(2, "there is no file", path)


class NotAscii(UnicodeDecodeError):
    def __init__(self, text):
        super().__init__("ascii", text, 0, 1, "it is not ASCII")


class Busy(QueueFull):
    def __init__(self, name):
        super().__init__(f"{name} is busy", 2.5)


class EmptyText(InvalidInput):
    def __init__(self, index, *, field):
        super().__init__(f"text {index} of {field} is empty")
        self.index = index


class Made(Exception):
    """With a ``__new__`` of its own."""

    def __new__(cls, code, detail):
        made = super().__new__(cls, code, detail)
        made.detail = detail
        return made

    def __init__(self, code, detail):
        super().__init__(code)


class Holding(ValueError):
    """With an attribute that cannot be pickled."""

    def __init__(self, text, *, code):
        super().__init__(text)
        self.code = code
        self.lock = threading.Lock()


class Reduced(Exception):
    """Says itself how it is made again."""

    def __init__(self, text, *, code):
        super().__init__(text)
        self.code = code

    def __reduce__(self):
        return _reduced, (self.args[0], self.code)


def _reduced(text, code):
    return Reduced(text, code=code)


def _noted(error):
    if sys.version_info >= (3, 11):
        error.add_note("a note")
    return error


def _grouped():
    if sys.version_info < (3, 11):
        return Coded(7, detail="no groups")
    return ExceptionGroup("two", [Coded(7, detail="in a group"), KeyError("k")])  # noqa: F821


OWN_INIT = {
    "keyword": lambda: Coded(7, detail="odd"),
    "prefix": lambda: Prefixed("odd", 7),
    "silent": lambda: Silent("odd", 7),
    "oserror": lambda: NoFile("/missing"),
    "unicode": lambda: NotAscii(b"\xff"),
    "queue-full": lambda: Busy("the model"),
    "invalid-input": lambda: EmptyText(3, field="TEXT"),
    "own-new": lambda: Made(7, "odd"),
    "holding": lambda: Holding("odd", code=7),
    "reduced": lambda: Reduced("odd", code=7),
    "noted": lambda: _noted(Coded(7, detail="noted")),
    "group": _grouped,
    "plain": lambda: OSError(7, "odd"),
}


def picture(error):
    """What a caller sees of an exception, but for attributes that cannot be pickled."""
    attributes = {name: value for name, value in vars(error).items() if name != "lock"}
    attributes.pop("__notes__", None)
    c_fields = [getattr(error, name, None) for name in ("errno", "filename", "reason", "object")]
    inner = [picture(each) for each in getattr(error, "exceptions", ())]
    notes = getattr(error, "__notes__", None)
    own_args = error.args if not inner else error.args[0]
    return type(error), str(error), own_args, attributes, c_fields, notes, inner


def raise_named(batch):
    """Raises the exception that the one item names."""
    known = {**CONTROL, **EXITS}
    for item in batch:
        if item in known:
            raise known[item]
        if item in OWN_INIT:
            raise OWN_INIT[item]()
    return batch


def return_named(batch):
    """Has that exception as an output."""
    return [CONTROL.get(item) or EXITS.get(item) or item for item in batch]


def yield_named(batch):
    """Has that exception as the second piece."""
    yield ["a piece" for _ in batch]
    yield return_named(batch)


def iterate_named(batch):
    """Has an iterator per item, which returns or raises that exception."""

    def pieces(item):
        yield "a piece"
        yield return_named([item])[0]

    return [pieces(item) for item in batch]
