"""The reason why a worker could not load its model: a message and the exception.

The worker sends it to the engine, and requests in any process end with it. It is sent as one
string, the note: the message, a separator, and the output of `pickling.pack_error` in base64.
"""

from __future__ import annotations

import base64
import dataclasses
import pickle
from typing import Any

from .._base.cuda import remedy_after_fork
from .._base.errors import WorkerInitError
from .._base.messages import text_of
from .._engine.pickling import pack_error, unpack_error
from . import unguarded

_SEPARATOR = "\x1f"
_MOST_PICKLED = 64 * 1024  # bytes of an exception; a larger one arrives as its traceback


@dataclasses.dataclass(frozen=True)
class InitFailure:
    """The reason why a worker could not load its model."""

    message: str
    packed: str = ""
    """the pickled exception in base64; empty: the process died without one"""

    @classmethod
    def of(cls, error: BaseException, trace: str) -> InitFailure:
        """Create it in the worker, from the exception and its traceback."""
        if (message := unguarded.find(text_of(error))) is not None:
            return cls(message)  # it has the remedy; a traceback would obscure it
        pickled, text, _ = pack_error(error)
        if remedy := remedy_after_fork(error):
            text += f": {remedy}"
        if pickled is not None and len(pickled) > _MOST_PICKLED:
            pickled = None
        packed = pickle.dumps([pickled, text, trace], 5)
        return cls(text, base64.b64encode(packed).decode())

    @classmethod
    def from_note(cls, note: str) -> InitFailure:
        """Parse the string that `note` returns."""
        message, _, packed = note.partition(_SEPARATOR)
        return cls(message, packed)

    @property
    def note(self) -> str:
        """The string that is sent."""
        # without surrogates, which a path in it may have
        message = self.message.encode(errors="replace").decode()
        tail = _SEPARATOR + self.packed if self.packed else ""
        return message.replace(_SEPARATOR, " ") + tail

    @property
    def unguarded_main(self) -> bool:
        """True if a module creates a Streamer when it is imported, so a retry cannot succeed."""
        return unguarded.find(self.message) is not None

    def with_note(self, more: str) -> InitFailure:
        """Return it with an addition to the message."""
        return self if self.unguarded_main else InitFailure(f"{self.message} ({more})", self.packed)

    def for_log(self) -> str:
        """Return the text for the log: the message, and the traceback if there is one."""
        trace = self._unpacked()[2] if self.packed else None
        return self.message if trace is None else f"{self.message}\n{trace}".rstrip()

    def error(self) -> WorkerInitError:
        """Return the exception for callers. Its ``__cause__`` is the exception of the worker."""
        failed = WorkerInitError(self.message)
        if self.packed:
            failed.__cause__ = unpack_error(self._unpacked())
        return failed

    def _unpacked(self) -> Any:
        return pickle.loads(base64.b64decode(self.packed))


def error_of(note: str) -> WorkerInitError:
    """Return the exception for a request that ended with a note. Called by the core."""
    return InitFailure.from_note(note).error()
