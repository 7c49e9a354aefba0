"""What pickling needs of Python: errors that name what could not travel, and arrays inside others.

Plain values, arrays and everything else are pickled by the core, which calls `dumps` only for
containers of arrays, and where torch is loaded. Errors of a worker travel as ``[pickle or None,
text, traceback]``: a class that cannot be pickled, or that its caller does not have, arrives as
text.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

from ._errors import RequestTimeout, SerializationError, WorkerLost, WorkerTraceback

# ------------------------------------------------------------------------ errors


def refuse_item(error: BaseException, where: tuple[int, Any]) -> NoReturn:
    """Say which item of a request could not be pickled."""
    index, item = where
    raise SerializationError(
        f"item {index} of the request, of type {_type_name(item)}, cannot be pickled: "
        f"{_short(error)}"
    ) from error


# For an exit in the code of the object it is WorkerLost.
_Refusal: TypeAlias = SerializationError | WorkerLost


def refuse_output(error: BaseException, outputs: Any) -> _Refusal:
    """Say which output of the model could not be pickled, as far as that can be told."""
    guilty = outputs
    if isinstance(outputs, list):
        guilty = next((output for output in outputs if not _can_be_pickled(output)), outputs)
    return _refusal(error, f"an output of type {_type_name(guilty)} cannot be pickled")


def refuse_input(error: BaseException) -> _Refusal:
    """Say why the worker could not unpickle a request; with the traceback as its cause."""
    refused = _refusal(error, "an item of the request cannot be unpickled in the worker")
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    refused.__cause__ = WorkerTraceback(text)
    return refused


def unread(size: int) -> MemoryError:
    """Say that the worker could not even receive what a request brought along."""
    return MemoryError(f"the worker has no memory for the {size:,} bytes of a request")


def refuse_answer(error: BaseException) -> _Refusal:
    """Say that what came from the worker cannot be unpickled here."""
    refused = _refusal(error, "the outputs cannot be unpickled")
    refused.__cause__ = error
    return refused


def _refusal(error: BaseException, what: str) -> _Refusal:
    kind = SerializationError if isinstance(error, Exception) else WorkerLost
    return kind(f"{what}: {_short(error)}")


def expired() -> RequestTimeout:
    """Make what the part of a batch ends with whose deadline passed before it ran again."""
    return RequestTimeout("the request was not answered within its deadline")


def dropped() -> WorkerLost:
    """Make what the parts of a batch end with that its worker dropped."""
    return WorkerLost("the worker of a batch with this request ended without an answer")


def pack_error(error: BaseException) -> list[Any]:
    """Make something of an exception that any process can unpickle."""
    cause = error.__cause__
    text = cause.text if isinstance(cause, WorkerTraceback) else None
    return [_pickled(error), _full(error), text]


def unpack_error(packed: list[Any]) -> BaseException:
    """Make the exception again, or a `SerializationError` with its text."""
    pickled, text, trace = packed
    error = None
    if pickled is not None:
        try:
            error = pickle.loads(pickled)
        except Exception as reason:
            text = f"{text} (which cannot be unpickled here: {_short(reason)})"
    if not isinstance(error, BaseException):
        error = SerializationError(f"the model raised {text}")
    if trace is not None:
        error.__cause__ = WorkerTraceback(trace)
    return error


def _pickled(error: BaseException) -> bytes | None:
    try:
        pickled = dumps(error)
        twin = pickle.loads(pickled)
        same = type(twin) is type(error) and (
            str(twin) == str(error) or twin.args == error.args or dumps(twin) == pickled
        )
    except BaseException:  # a class that cannot be pickled, or made from its args
        return None
    return pickled if same else None


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
    cls = type(error)
    name = (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )
    try:
        return f"{name}: {error}"[:10_000]
    except BaseException:
        return name


# ------------------------------------------------------------------------ arrays


def as_array(outputs: Any) -> Any:
    """Return outputs that travel as an array, whose rows their caller cuts out; None: item by item.

    What a GPU has comes to the CPU here, once for the batch.
    """
    library = type(outputs).__module__.partition(".")[0]
    if library == "numpy" and isinstance(outputs, sys.modules["numpy"].ndarray):
        return None if outputs.dtype.hasobject else outputs
    if library == "torch" and isinstance(outputs, sys.modules["torch"].Tensor):
        return outputs.cpu()
    return None


def dumps(value: Any, buffer_callback: Callable[[Any], object] | None = None) -> bytes:
    """``pickle.dumps``, but arrays and tensors as `reduce_array` and `reduce_tensor` have them."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, 5, buffer_callback=buffer_callback)
    pickler.dispatch_table = _Reducers()
    pickler.dump(value)
    return file.getvalue()


class _Reducers(dict[type, Callable[[Any], Any]]):
    """What the pickler asks how to reduce a type: copyreg's, and ours for arrays and tensors."""

    def __init__(self) -> None:
        super().__init__(copyreg.dispatch_table)
        # one without its class is being imported right now
        array = getattr(sys.modules.get("numpy"), "ndarray", None)
        tensor = getattr(sys.modules.get("torch"), "Tensor", None)
        if array is not None:
            self[array] = reduce_array
        if tensor is not None:
            self[tensor] = reduce_tensor


def reduce_array(array: Any) -> Any:
    """Reduce an array of plain numbers to what `numpy.ndarray` makes it of, in their memory.

    numpy's own way costs many times as much, on both sides; it is left for other arrays. The core
    writes an array that is not inside of something else in the same way (`array_pickle.h`).
    """
    numbers = array.dtype
    builtin = numbers.isbuiltin == 1 and numbers.kind in "biufc"
    plain = builtin and numbers.isnative and numbers.metadata is None
    if not (plain and array.flags.c_contiguous):
        return array.__reduce_ex__(5)
    return type(array), (array.shape, numbers.str, pickle.PickleBuffer(array))


def reduce_tensor(tensor: Any) -> Any:
    """Reduce a dense tensor to its numbers, which are not copied, and what they mean.

    A tensor of a GPU travels as one of the CPU: its receiver may not have that GPU, or must not
    touch it. Tensors that share memory no longer do so afterwards, as with numpy's arrays.
    """
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        return tensor.__reduce_ex__(5)
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    # as bytes, for numpy does not know all of torch's types
    numbers = pickle.PickleBuffer(flat.view(torch.uint8).numpy())
    return rebuild_tensor, (numbers, tensor.dtype, tuple(tensor.shape), tensor.requires_grad)


def rebuild_tensor(numbers: Any, dtype: Any, shape: tuple[int, ...], requires_grad: bool) -> Any:
    """Make a tensor of its numbers, in their memory."""
    import torch

    if len(memoryview(numbers)) == 0:
        tensor = torch.empty(shape, dtype=dtype)
    else:
        tensor = torch.frombuffer(numbers, dtype=dtype).reshape(shape)
    return tensor.requires_grad_() if requires_grad else tensor
