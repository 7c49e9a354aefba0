"""Why a worker could not load its model: in words, and with the exception that it raised.

The worker sends it to the engine, whose requests end with it, also in other processes. So it
travels as text, a note: the words, and behind a separator what `_pickle.pack_error` makes of the
exception, in base64.
"""

from __future__ import annotations

import base64
import dataclasses
import pickle
from typing import Any

from .._errors import WorkerInitError
from .._pickle import pack_error, unpack_error

UNGUARDED_MAIN = """\
A worker process imports the main module, and this one makes a Streamer as soon as it is imported. \
Only the program itself may do that:

    if __name__ == "__main__":
        streamer = Streamer(...)
"""

_SEPARATOR = "\x1f"
_MOST_PICKLED = 64 * 1024  # bytes of an exception; a larger one arrives as its traceback


@dataclasses.dataclass(frozen=True)
class InitFailure:
    """Why a worker could not load its model."""

    words: str
    packed: str = ""
    """the exception; empty: the process died without one"""

    @classmethod
    def of(cls, error: BaseException, trace: str) -> InitFailure:
        """Describe what prevented this worker from being ready."""
        if UNGUARDED_MAIN in str(error):
            return cls(UNGUARDED_MAIN)  # it says what to do; its traceback would only hide that
        pickled, text, _ = pack_error(error)
        if pickled is not None and len(pickled) > _MOST_PICKLED:
            pickled = None
        packed = pickle.dumps([pickled, text, trace], 5)
        return cls(text, base64.b64encode(packed).decode())

    @classmethod
    def from_note(cls, note: str) -> InitFailure:
        """Read what `note` has written."""
        words, _, packed = note.partition(_SEPARATOR)
        return cls(words, packed)

    @property
    def note(self) -> str:
        """The text that travels."""
        words = self.words.encode(errors="replace").decode()  # there may be an odd path in it
        tail = _SEPARATOR + self.packed if self.packed else ""
        return words.replace(_SEPARATOR, " ") + tail

    @property
    def unguarded_main(self) -> bool:
        """Whether the main module has no guard: no other attempt can succeed."""
        return UNGUARDED_MAIN in self.words

    def adding(self, more: str) -> InitFailure:
        """Say more about it, after what was raised."""
        return self if self.unguarded_main else InitFailure(f"{self.words} ({more})", self.packed)

    def for_log(self) -> str:
        """One line without the advice that the exception has, or the words and the traceback."""
        if self.unguarded_main:
            return "the main module makes a Streamer when it is imported, without a __main__ guard"
        trace = self._unpacked()[2] if self.packed else None
        return self.words if trace is None else f"{self.words}\n{trace}".rstrip()

    def error(self) -> WorkerInitError:
        """Make the exception that callers get, with that of the worker as its cause."""
        failed = WorkerInitError(self.words)
        if self.packed:
            failed.__cause__ = unpack_error(self._unpacked())
        return failed

    def _unpacked(self) -> Any:
        return pickle.loads(base64.b64decode(self.packed))


def error_of(note: str) -> WorkerInitError:
    """Make the exception of a request that ended with a note. Called by the core."""
    return InitFailure.from_note(note).error()
