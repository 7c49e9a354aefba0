"""`BatchedModel`: a callable on batched tensors as a predict function on lists of items."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from .._model import check_callable, name_of
from .._native import NativeSource
from .._options import one_of
from .._worker import FAULTS_OF_THE_MODEL, copy_error, detached, is_out_of_memory
from ._collate import check_key, collate_options, number_keys, pad_values
from ._module import load_module
from ._placement import Placement, check_device
from ._rows import OUTPUTS, Padding, Splitter


class BatchedModel:
    """A predict function made of a callable on batches: a ``torch.nn.Module``, or any function.

    Collates the items of a batch in C++, into memory that is used again, runs the callable, and
    splits what it returns::

        model = BatchedModel(encoder, collate="pad", mask="attention_mask", device="cuda:0")
        streamer = ThreadedStreamer(model, batch_size=64)
        embeddings = streamer.predict([{"input_ids": ids} for ids in tokenized])

    An item is a tensor or numpy array on the host, without the batch dimension, or a tuple of them,
    which become positional arguments, or a dict of them, which become named ones. Items that do not
    fit into one tensor (other names, types, dimensions, sizes that are not padded) are run in
    batches of their own, that of the oldest item first; what is no tensor is refused with a
    TypeError. Neither costs the other items anything. Items must not be changed until they are
    answered.

    The callable returns a tensor with a row for each item, or a tuple, list or dict of them. Each
    caller gets his rows in the same structure: views of the output of the whole batch. What is
    made like a tuple comes as a tuple, what is made like a dict as a dict: so do a namedtuple, and
    a ``ModelOutput`` of transformers. It runs under ``torch.no_grad()``, not under
    ``inference_mode()``, whose tensors callers could not change. What it keeps of its arguments
    stays as it is: the next batch then gets new memory.

    It is called in the worker's Python thread, or process: it can be given to any streamer, to a
    `RedisWorker`, or be called. It can be pickled where the callable can.

    Args:
        model: the callable.
        device: "cpu", or a GPU as "cuda:0": the batches are copied there, from pinned memory, on a
            stream of their own. A module is moved there when it is first called. None: where the
            first parameter or buffer of the module is, which then is not moved.
        collate: "stack": the items of a batch have the same shape. "pad": their tensors are
            sequences over their first dimension, padded to the longest of the batch.
        pad_side, pad_value, pad_to, batch_sizes: as for `NativeModel`. Of a tuple the tensors are
            named "0", "1" and so on in ``pad_value``; a name that no item has is ignored.
        mask: a named argument that is made here when items are padded: int64, 1 where the first
            tensor of an item has something: the first that has a dimension, of a dict the first
            by name that has one.
        lengths: the same: int64, how long that tensor of each item is.
        trim: True: what is returned are sequences too, over their second dimension (the first one
            is the batch), which is cut to the length of each item, that of the same tensor; or the
            names of the outputs of which that is true, places in a tuple as "0". False: callers get
            padding as it is, for sizes alone do not tell sequences from, say, the scores of as many
            classes.
        key: a function of an item that gives something hashable: only items of equal keys are run
            together. What it raises is raised to the caller of the item.
        output: "tensor": tensors where the callable leaves them. On a GPU they are computed when
            callers get them, but their memory belongs to the stream of the worker: who uses them on
            another one says so by ``record_stream``. "cpu": on the host; "numpy".

    Raises:
        TypeError: it is no such callable.
        ValueError: a setting is wrong; the message names it and its value.
        ImportError: torch is missing, or the module for it is, or is built for another torch.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        *,
        device: str | None = None,
        collate: str = "stack",
        pad_side: str = "right",
        pad_value: float | Mapping[str, float] = 0,
        pad_to: Sequence[int] = (),
        batch_sizes: Sequence[int] = (),
        mask: str | None = None,
        lengths: str | None = None,
        trim: bool | Sequence[str] = False,
        key: Callable[[Any], Hashable] | None = None,
        output: str = "tensor",
    ) -> None:
        if isinstance(model, NativeSource | BatchedModel):
            raise TypeError(f"a {type(model).__name__} makes batches by itself: give it as it is")
        self._model = check_callable(model, "model")
        collating = collate_options(collate, pad_side, pad_to, batch_sizes)
        one_of("output", output, OUTPUTS)
        for option, value in (("mask", mask), ("lengths", lengths), ("trim", trim)):
            if value and collate != "pad":
                raise ValueError(f"{option}={value!r} needs collate='pad', not {collate!r}")
        if mask is not None and mask == lengths:
            raise ValueError(f"mask and lengths must have different names, not both {mask!r}")
        usual, by_name = pad_values(pad_value)
        self._key = check_key(key)
        self._device = check_device(device, model)
        self._moved = None if device is None else model
        self._splitter = Splitter(trim, pad_side, output)
        self._options: dict[str, Any] = {
            **collating,
            "pad_value": usual,
            "pad_values": by_name,
            "mask": mask or "",
            "lengths": lengths or "",
            "pinned": self._device.startswith("cuda"),
        }
        self._here: tuple[Any, Placement] | None = None  # what belongs to one process
        load_module()

    def __call__(self, batch: Sequence[Any]) -> list[Any]:
        """Run it on some items.

        Returns:
            A list with the outputs of each item; an exception where it was refused, failed in a
            batch of its own, or is in one whose outputs are wrong by no item's fault. A single
            item's is raised.
        """
        items = list(batch)
        if self._here is None:
            self._here = load_module().Batcher(self._options), Placement(self._device, self._moved)
        batcher, placement = self._here
        keys, outputs = number_keys(self._key, items)
        groups = load_module().Groups(batcher, items, keys)
        outputs.update(groups.refused)
        for number, places in enumerate(groups.places):
            try:
                placement.wait()  # until the memory of the last batch may be written to
                rows = self._run(placement, groups.collate(number), len(places))
            except Exception as error:
                if len(places) == len(items) or not _ends_with_its_group(error, len(places)):
                    raise
                error = detached(error)
                outputs.update((place, copy_error(error)) for place in places)
            else:
                outputs.update(zip(places, rows, strict=True))
        if len(items) == 1 and isinstance(outputs[0], Exception):
            raise outputs[0]
        return [outputs[place] for place in range(len(items))]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_here": None}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {name_of(self._model)} on {self._device}>"

    def _run(self, placement: Placement, collated: Any, count: int) -> list[Any]:
        import torch

        args, kwargs, padded, lengths = collated
        rows = len(args[0] if args else next(iter(kwargs.values())))
        with torch.no_grad():
            try:
                output = placement.call(self._model, args, kwargs)
                padding = None if lengths is None else Padding(padded, lengths)
                return self._splitter.split(output, count, rows, padding)
            except RuntimeError as error:
                # of the host's memory torch says it in words only
                if type(error) is RuntimeError and load_module().is_about_memory(str(error)):
                    raise MemoryError(str(error)) from error
                raise


def _ends_with_its_group(error: Exception, count: int) -> bool:
    """Whether those of a group that raised have failed for good, which costs the others nothing."""
    if is_out_of_memory(error):  # in parts there may be enough, even for one that was alone
        return False
    return count == 1 or isinstance(error, FAULTS_OF_THE_MODEL)
