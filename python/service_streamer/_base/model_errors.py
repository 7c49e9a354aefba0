"""Exceptions that the model raises, made fit for callers in other threads."""

from __future__ import annotations

import contextlib
import copy
import traceback
from types import TracebackType
from typing import Any, TypeVar

from .cuda import remedy_after_fork
from .errors import OutputSizeMismatch, WorkerLost, WorkerTraceback
from .messages import short, text_of

_Error = TypeVar("_Error", bound=BaseException)


class OutputRefused(ValueError):
    """The model's return value does not fit its settings, whatever the items are."""


class NotRun(Exception):
    """The batch was not run, or not to its end: `error` is for its callers."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


_SENT = "_service_streamer_sent"
_ENDS_A_LOOP = (StopIteration, StopAsyncIteration, GeneratorExit)

FAULTS_OF_THE_MODEL = (OutputSizeMismatch, OutputRefused, NotRun)
"""Errors that no item causes: the batch is not run again."""


def detached(error: BaseException) -> Exception:
    """Return a copy of an exception of the model, with the traceback as text.

    A copy, because the model may raise the same object again. Text, because a traceback keeps the
    frames, and so the items of all callers, alive. The text omits the frame of the caller of this
    function. An exception that would end something of a caller is replaced (`for_callers`).
    """
    here = error.__traceback__
    return without_frames(error, here.tb_next if here is not None else None)


def without_frames(error: BaseException, trace: TracebackType | None) -> Exception:
    """Return a copy of an exception of the model whose cause is this traceback as text."""
    text = None  # an exception of the core has no traceback
    if trace is not None:
        try:
            text = "".join(traceback.format_exception(type(error), error, trace))
            text += remedy_after_fork(error)
        except Exception:  # no memory for it
            text = type(error).__name__
    # The model may keep the original; without its frames the memory of the batch is freed.
    error.__traceback__ = error.__context__ = error.__cause__ = None
    note_sent(error, None)  # of an earlier stream
    copied = copy_error(error)
    copied.__cause__ = WorkerTraceback(text) if text is not None else None
    return for_callers(copied)


def note_sent(error: BaseException, sent: tuple[bytes, int] | None) -> None:
    """Note in an exception which pieces of its stream were sent before it: a `Sent`; None: none."""
    with contextlib.suppress(Exception):  # a class without a dict
        if sent is not None:
            vars(error)[_SENT] = sent
        else:
            vars(error).pop(_SENT, None)


def sent_of(error: BaseException | None) -> tuple[bytes, int] | None:
    """Return what `note_sent` has noted."""
    return getattr(error, "__dict__", {}).get(_SENT)  # not getattr: it may run code of the user


def for_callers(error: BaseException) -> Exception:
    """Return an exception that the model has raised or returned, as its callers may get it.

    StopIteration and the like would end a loop of the caller, or an await without a result, and
    CancelledError a task. They are the cause of a RuntimeError, as in PEP 479. SystemExit,
    KeyboardInterrupt and the like would end a thread or an event loop. They become `WorkerLost`.
    """
    if isinstance(error, _ENDS_A_LOOP) or _cancels(error):
        failure = RuntimeError(
            f"predict_function raised {short(error)}, which would end a loop or a task of the "
            "caller"
        )
        failure.__cause__ = error
        return failure
    if isinstance(error, Exception):
        return error
    lost = WorkerLost(f"predict_function raised {short(error)}")
    lost.__cause__ = error.__cause__
    return lost


def copy_error(error: _Error) -> _Error:
    """Return a copy of an exception for another caller, or itself if it has no exact copy."""
    try:
        copied = copy.copy(error)
        same = type(copied) is type(error) and len(copied.args) == len(error.args)
        if not same or not all(map(_is_same, copied.args, error.args)):
            return error
    except BaseException:
        return error  # user code: the class cannot be created from its args
    if copied is not error:
        copied.__cause__ = error.__cause__
    return copied


def _cancels(error: BaseException) -> bool:
    # those of concurrent.futures, asyncio and others, none of which may be imported
    return any(base.__name__ == "CancelledError" for base in type(error).__mro__)


def _is_same(copied: Any, original: Any) -> bool:
    # Other types than str may have an == that raises or does not return a bool.
    are_strings = type(copied) is type(original) is str
    return copied is original or (are_strings and copied == original)


# Of torch, CUDA, JAX and ONNX Runtime only the message tells that an error is about memory.
_ABOUT_MEMORY = (
    "out of memory",  # CUDA, c10, JAX
    "not enough memory",  # the CPU allocator of torch
    "can't allocate memory",  # the same, older
    "failed to allocate memory",  # ONNX Runtime
    "bad_alloc",
    "status_alloc_failed",  # cuBLAS, cuDNN
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if the host or a GPU had too little memory for the batch."""
    if isinstance(error, MemoryError) or any(
        base.__name__ == "OutOfMemoryError" for base in type(error).__mro__
    ):
        return True
    if not isinstance(error, RuntimeError) and "onnxruntime" not in type(error).__module__:
        return False
    text = text_of(error).lower()
    return any(words in text for words in _ABOUT_MEMORY)
