"""What the messages of this package share: the page that explains them, and short values.

The core calls these functions too, so the address of the page is in one place.
"""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import Any

PAGE = "https://github.com/service-streamer-ng/service-streamer-ng/blob/main/docs/troubleshooting/errors.md"
"""the page that tells the cause and the remedy of each message"""

_LONGEST = 100  # characters of a value in a message
_LONGEST_TEXT = 10_000  # characters of the text of an exception
_ANCHOR = "abcdefghijklmnopqrstuvwxyz0123456789_-"
_CONSTRUCTORS = ("__init__", "checked")  # of _option_names


def see(message: str, anchor: str) -> str:
    """Return the message and, on a line of its own, the address of its entry on the page.

    A message that is quoted in it loses its own address.
    """
    own, *quoted = message.split(f"\nsee {PAGE}#")
    rest = [each.lstrip(_ANCHOR) for each in quoted]
    return "".join([own, *rest, f"\nsee {PAGE}#{anchor}"])


def wrong_option(message: str, kind: type[Exception] = ValueError) -> Exception:
    """Return the error of a wrong value of an option; the message has the option and the value."""
    return kind(see(message, "a-wrong-value-of-an-option"))


def is_wrong_argument(error: Exception) -> bool:
    """Return True if the error tells that an argument of this package is wrong."""
    anchors = ("wrong-value-of-an-option", "option-of-another-streamer", "cannot-be-called")
    return str(error).endswith(anchors)


def no_such_option(message: str) -> TypeError:
    """Return the error of an option that a class does not have; the message has the remedy."""
    return TypeError(see(message, "an-option-of-another-streamer"))


def missing_package(error: ImportError, extra: str, also: str = "") -> ImportError:
    """Return the error of an import that failed, with the command that installs the package.

    An error that this function made for another extra is returned: it has its own command.

    Args:
        error: what the import raised.
        extra: of this distribution.
        also: a further package that has to be installed.
    """
    if is_missing_package(error):
        return error
    package = (error.name or "").partition(".")[0]
    found = isinstance(error, ModuleNotFoundError)
    what = f"the package {package} is missing" if found else str(error)
    command = f"pip install 'service-streamer-ng[{extra}]' {also}".rstrip()
    return ImportError(see(f"{what}: {command}", "a-package-is-missing"), name=error.name)


def is_missing_package(error: ImportError) -> bool:
    """Return True if `missing_package` made the error."""
    return str(error).endswith("#a-package-is-missing")


def short(value: Any) -> str:
    """Return the repr of a value, cut if it is long; its type if it has none."""
    import reprlib  # only for a message

    cut = reprlib.Repr()
    cut.maxstring = cut.maxother = 60
    try:
        if isinstance(value, int):
            repr(value)  # raises for thousands of digits, where reprlib shows an address since 3.14
        text = cut.repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    text = " ".join(map(str.strip, text.splitlines()))  # that of a frame has several
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."


def text_of(error: BaseException) -> str:
    """Return the text of an exception for a message or a log: valid UTF-8, cut if it is long.

    Never raises, although the class may be a user's whose `__str__` raises.
    """
    try:
        text = str(error)
        cut = text[:_LONGEST_TEXT].encode(errors="replace").decode()
        return cut if len(text) <= _LONGEST_TEXT else f"{cut} ..."
    except BaseException as raised:  # user code
        return f"<its __str__ raised {type(raised).__name__}>"


def describe(error: BaseException) -> str:
    """Return the type and the text of an exception. Never raises; see `text_of`."""
    name, text = type(error).__name__, text_of(error)
    return f"{name}: {text}" if text else name


def closed(name: str = "the streamer", state: str = "closed") -> str:
    """Return the message of `StreamerClosed` for a request to a streamer."""
    return see(
        f"{name} is {state}: create a new one, and let its `with` block end after the last request",
        "streamerclosed",
    )


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user that led here."""
    level, frame = 2, sys._getframe(1)
    while is_ours(frame) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def made_by_user() -> bool:
    """Return True if the user, not this package, creates an object.

    To be called by a function that `__init__` of the object calls.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and is_ours(frame):
        if frame.f_code.co_name not in _CONSTRUCTORS:
            return False
        frame = frame.f_back
    return True


def is_ours(frame: FrameType) -> bool:
    """Return True for the frame of a function of this package."""
    package = __name__.partition(".")[0]
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == package
