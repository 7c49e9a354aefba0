"""The parts of pickling that are written in Python: error messages, containers of arrays, tensors.

The core pickles items and outputs. It calls `dumps` only for containers of arrays, and if torch is
loaded. Errors of a worker are sent as ``[pickle or None, text, cause]``. The cause is a traceback
as text, or an error in the same form. If the exception class cannot be pickled, or cannot be
imported by the caller, only the text arrives.
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
import io
import pickle
import sys
import traceback
from collections.abc import Callable
from types import WrapperDescriptorType
from typing import Any, NoReturn, TypeAlias

from .._base.errors import RequestTimeout, SerializationError, WorkerLost, WorkerTraceback
from .._base.model_errors import note_sent, sent_of
from .._waiting.threads import loaded
from .outputs import has_several, mapped

# ------------------------------------------------------------------------ errors


def refuse_item(error: BaseException, where: tuple[int, Any]) -> NoReturn:
    """Raise `SerializationError` for an item that cannot be pickled.

    Args:
        error: the exception of pickle.
        where: the index of the item and the item.
    """
    index, item = where
    raise SerializationError(
        f"item {index} of the request, of type {_type_name(item)}, cannot be pickled: "
        f"{_short(error)}"
    ) from error


# WorkerLost if the code of the object raised SystemExit or the like.
_Refusal: TypeAlias = SerializationError | WorkerLost


def refuse_output(error: BaseException, outputs: Any) -> _Refusal:
    """Return the error for outputs that cannot be pickled. It names the type of the first one."""
    guilty = outputs
    if isinstance(outputs, list):
        guilty = next((output for output in outputs if not _can_be_pickled(output)), outputs)
    return _refusal(error, f"an output of type {_type_name(guilty)} cannot be pickled")


def refuse_input(error: BaseException) -> _Refusal:
    """Return the error for items that the worker cannot unpickle, with the traceback as cause."""
    refused = _refusal(error, "an item of the request cannot be unpickled in the worker")
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    refused.__cause__ = WorkerTraceback(text)
    return refused


def unread(size: int) -> MemoryError:
    """Return the error for a request of `size` bytes that does not fit into worker memory."""
    return MemoryError(f"the worker has no memory for a request of {size:,} bytes")


def refuse_answer(error: BaseException) -> _Refusal:
    """Return the error for outputs that the caller cannot unpickle."""
    refused = _refusal(error, "the outputs cannot be unpickled")
    refused.__cause__ = error
    return refused


def _refusal(error: BaseException, what: str) -> _Refusal:
    kind = SerializationError if isinstance(error, Exception) else WorkerLost
    text = f"{what}: {_short(error)}"
    if "__main__" in text and main_has_no_file():
        text += (
            ". A worker knows a class of a notebook only if the model refers to it: mention it in "
            "the model, or define it in a module"
        )
    return kind(text)


def main_has_no_file() -> bool:
    """Return True in a notebook, ``python -c``, ``python -`` or a session, and in its workers."""
    main = sys.modules["__main__"]
    return main.__spec__ is None and getattr(main, "__file__", "<stdin>") == "<stdin>"


def expired() -> RequestTimeout:
    """Return the error of a request whose deadline passed before it could run again."""
    return RequestTimeout("the request was not answered within its deadline")


def dropped() -> WorkerLost:
    """Return the error of requests that their worker dropped without an answer."""
    return WorkerLost("the worker of a batch with this request ended without an answer")


def pack_error(error: BaseException, causes: int = 1) -> list[Any]:
    """Convert an exception to a list that any process can unpickle.

    Args:
        error: the exception.
        causes: how many causes go with it, except tracebacks. Causes may form a cycle.
    """
    cause: Any = error.__cause__
    if isinstance(cause, WorkerTraceback):
        cause = cause.text
    elif cause is not None:
        cause = pack_error(cause, causes - 1) if causes else None
    packed: list[Any] = [_pickled(error), _full(error), cause]
    if (sent := sent_of(error)) is not None:
        packed.append(tuple(sent))
    return packed


def unpack_error(packed: list[Any]) -> BaseException:
    """Return the exception of a packed list, or a `SerializationError` with its text."""
    pickled, text, cause, *sent = packed
    error = None
    if pickled is not None:
        try:
            error = pickle.loads(pickled)
        except Exception as reason:
            text = f"{text} (which cannot be unpickled here: {_short(reason)})"
    if not isinstance(error, BaseException):
        error = SerializationError(f"the model raised {text}")
    if cause is not None:
        is_text = isinstance(cause, str)
        error.__cause__ = WorkerTraceback(cause) if is_text else unpack_error(cause)
    if sent:
        note_sent(error, sent[0])
    return error


def _pickled(error: BaseException) -> bytes | None:
    """Return the pickle of an exception, in the first way that gives the same one back."""
    for dump in (dumps, _dumps_rebuilt, functools.partial(_dumps_rebuilt, whole=False)):
        try:
            pickled = dump(error)
            copied = pickle.loads(pickled)
            if type(copied) is type(error) and (
                str(copied) == str(error) or copied.args == error.args or dump(copied) == pickled
            ):
                return pickled
        except BaseException:  # user code: the class cannot be pickled, or created from its args
            continue
    return None


def _dumps_rebuilt(error: Any, whole: bool = True) -> bytes:
    """Pickle an exception, and those in it, so that their own ``__init__`` is not called.

    Args:
        error: the exception.
        whole: False: without the attributes that cannot be pickled.
    """
    file = io.BytesIO()
    pickler = _ErrorPickler(file, 5)
    pickler.dispatch_table = _Reducers()
    pickler.partial = None if whole else error
    pickler.dump(error)
    return file.getvalue()


class _ErrorPickler(pickle.Pickler):
    """Pickles exceptions whose class has its own ``__init__`` and inherits ``__reduce__``."""

    partial: BaseException | None = None
    """this one without attributes that cannot be pickled"""

    def reducer_override(self, obj: Any) -> Any:
        kind: Any = type(obj)
        if not isinstance(obj, BaseException) or isinstance(kind.__init__, WrapperDescriptorType):
            return NotImplemented
        reduced: Any = obj.__reduce_ex__(5)
        make, args, *state = reduced
        if make is not kind:
            return NotImplemented
        attributes = {**vars(obj), **(state[0] if state else {})}
        if obj is self.partial:
            attributes = {name: value for name, value in attributes.items() if _passes(value)}
        return rebuild_error, (kind, args, obj.args, attributes)


def rebuild_error(
    kind: type[BaseException], given: tuple[Any, ...], args: Any, attributes: dict[str, Any]
) -> BaseException:
    """Return an exception without a call of its own ``__new__`` and ``__init__``.

    Args:
        kind: its class.
        given: what that of its built-in base takes.
        args: those of the exception.
        attributes: its ``__dict__``.
    """
    builtin: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    error: BaseException = builtin.__new__(kind, *given)
    with contextlib.suppress(Exception):  # some take other arguments
        builtin.__init__(error, *given)
    error.args = args
    error.__setstate__(attributes)
    return error


def _passes(value: Any) -> bool:
    try:
        pickle.loads(_dumps_rebuilt(value))
    except BaseException:
        return False
    return True


def _can_be_pickled(output: Any) -> bool:
    try:
        dumps(output)
    except BaseException:
        return False
    return True


def _type_name(value: Any) -> str:
    cls = type(value)
    return (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )


def _short(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException:
        text = ""
    name = type(error).__name__
    return f"{name}: {text[:500]}" if text else name


def _full(error: BaseException) -> str:
    name = _type_name(error)
    try:
        return f"{name}: {error}"[:10_000]
    except BaseException:
        return name


# ------------------------------------------------------------------------ arrays


def as_array(outputs: Any) -> Any:
    """Return the outputs if they are sent as one array, of which each caller takes its rows.

    A GPU tensor is copied to the CPU, once per batch. None: the outputs are sent one by one.
    """
    if has_several(outputs):
        return mapped(outputs, _on_host)
    array = getattr(loaded("numpy"), "ndarray", None)
    tensor = getattr(loaded("torch"), "Tensor", None)
    if array is not None and isinstance(outputs, array):
        return None if outputs.dtype.hasobject else outputs
    if tensor is not None and isinstance(outputs, tensor):
        return outputs.cpu()
    return None


def _on_host(outputs: Any) -> Any:
    array = as_array(outputs)
    return outputs if array is None else array


def dumps(value: Any, buffer_callback: Callable[[Any], object] | None = None) -> bytes:
    """Do what ``pickle.dumps`` does, with `reduce_array` and `reduce_tensor`."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, 5, buffer_callback=buffer_callback)
    pickler.dispatch_table = _Reducers()
    pickler.dump(value)
    return file.getvalue()


class _Reducers(dict[type, Callable[[Any], Any]]):
    """The dispatch table of the pickler: that of copyreg, plus arrays and tensors."""

    def __init__(self) -> None:
        super().__init__(copyreg.dispatch_table)
        # a module without the class is just being imported by another thread
        array = getattr(loaded("numpy"), "ndarray", None)
        tensor = getattr(loaded("torch"), "Tensor", None)
        if array is not None:
            self[array] = reduce_array
        if tensor is not None:
            self[tensor] = reduce_tensor


def reduce_array(array: Any) -> Any:
    """Reduce an array of plain numbers to a call of its class with the shape, dtype and buffer.

    This is much faster than numpy's own reduction, which is still used for other arrays. The core
    writes an array that is an item by itself in the same form (`array_pickle.h`).
    """
    numbers = array.dtype
    builtin = numbers.isbuiltin == 1 and numbers.kind in "biufc"
    plain = builtin and numbers.isnative and numbers.metadata is None
    if not (plain and array.flags.c_contiguous):
        return array.__reduce_ex__(5)
    return type(array), (array.shape, numbers.str, pickle.PickleBuffer(array))


def reduce_tensor(tensor: Any) -> Any:
    """Reduce a dense tensor to its buffer, which is not copied, its dtype and its shape.

    A GPU tensor arrives as a CPU tensor, because the receiver may not have that GPU. Tensors that
    share memory no longer share it after unpickling, as with numpy arrays.
    """
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        return tensor.__reduce_ex__(5)
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    # A tensor of one element is contiguous whatever its strides are, and view() needs stride 1.
    flat = dense.as_strided((dense.numel(),), (1,))
    # as bytes, because numpy lacks some dtypes of torch
    numbers = pickle.PickleBuffer(flat.view(torch.uint8).numpy())
    return rebuild_tensor, (numbers, tensor.dtype, tuple(tensor.shape), tensor.requires_grad)


def rebuild_tensor(numbers: Any, dtype: Any, shape: tuple[int, ...], requires_grad: bool) -> Any:
    """Return a tensor that uses the memory of the buffer."""
    import torch

    if len(memoryview(numbers)) == 0:
        tensor = torch.empty(shape, dtype=dtype)
    else:
        tensor = torch.frombuffer(numbers, dtype=dtype).reshape(shape)
    return tensor.requires_grad_() if requires_grad else tensor
