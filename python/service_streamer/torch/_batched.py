"""`BatchedModel`: turns a callable on batched tensors into a predict function on items."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from .._base.messages import wrong_option
from .._base.model_errors import FAULTS_OF_THE_MODEL, copy_error, detached, is_out_of_memory
from .._base.options import one_of
from .._base.types import Collate
from .._models.model import check_callable, name_of
from .._models.native import NativeSource
from ._batching import load_batching
from ._collate import PadSide, check_key, collate_options, number_keys, pad_values
from ._memory import memory_errors
from ._placement import Placement, check_device
from ._rows import OUTPUTS, Output, Sequences, Splitter


class BatchedModel:
    """A predict function that calls a ``torch.nn.Module``, or any function, on batches.

    It collates the items of a batch into memory that is reused. Then it calls the callable and
    splits the result.

    An item is a tensor or numpy array on the host, without the batch dimension. It may also be a
    tuple of them, which become positional arguments, or a dict of them, which become named
    arguments. Items that cannot share a tensor (other names, types, ranks, or sizes that are not
    padded) run in separate batches, the one of the oldest item first. An item that is not a tensor
    fails with a TypeError. Other items are not affected. Items must not be changed until they are
    answered.

    The callable returns a tensor with one row for each item, or a tuple, list or dict of such
    tensors. Each caller gets its rows in the same structure, as views of the output of the whole
    batch. Subclasses are converted: a namedtuple becomes a tuple, and a ``ModelOutput`` of
    transformers becomes a dict. The callable runs under ``torch.no_grad()``. It does not run under
    ``inference_mode()``, because callers could not modify its tensors. The callable may keep its
    arguments; the next batch then gets new memory.

    The callable runs in a Python worker thread or worker process. A BatchedModel can be given to
    any streamer or to a `RedisWorker`, or be called. It can be pickled if the callable can.

    Batches are made in C++ with torch 2.10 or later, otherwise by torch's own functions. The
    results are the same, and the repr tells which it is. With collate="pack" it is always torch.

    Args:
        model: the callable.
        device: "cpu", or a GPU like "cuda:0". Batches are copied to a GPU from pinned memory, on a
            separate stream. A module is moved to the device at its first call. None: the device of
            the module's first parameter or buffer; the module is not moved.
        collate: "stack": only items of the same shape share a batch. "pad": the first dimension of
            each tensor is a sequence, which is padded to the longest in the batch. "pack": the
            sequences of a batch are joined end to end, without a dimension of the batch. The
            tensors of an item have one length, and ids have no other dimension. The callable also
            gets ``cu_seqlens`` (int32: the first token of each sequence, and the number of all),
            ``position_ids`` (int64: the place of each token in its sequence) and ``max_seqlen``
            (an int). An empty sequence runs alone.
        pad_side, pad_value, pad_to, batch_sizes: see `NativeModel`. In ``pad_value``, the tensors
            of a tuple have the names "0", "1" and so on. Names that no item has are ignored.
        mask: the name of a generated argument, int64. It is 1 for the data of an item and 0 for
            padding. It is made from the first tensor of an item that has a dimension; the tensors
            of a dict are sorted by name. Only with collate="pad".
        lengths: the name of a generated argument, int64: the length of the same tensor of each
            item. Only with collate="pad".
        trim: True: the second dimension of each output (the first is the batch) is a sequence of
            the same length, and is cut to the length of the item. A sequence of names: only these
            outputs are cut; the outputs of a tuple have the names "0", "1" and so on. False:
            callers get the padding too. A size alone does not tell whether a dimension is a
            sequence. With collate="pack" such an output has a row for each token of the batch, and
            the item gets those of its tokens; another output has a row for each item. Not with
            collate="stack".
        key: a function of an item that returns something hashable. Only items with equal keys run
            in one batch. If it raises, the request of the item fails with that exception.
        output: "tensor": tensors on the device where the callable returns them. On a GPU their
            computation is finished, but their memory belongs to the worker's stream: call
            ``record_stream`` before using them on another stream. "cpu": tensors on the host.
            "numpy": arrays.

    Raises:
        TypeError: the model is not callable, or lacks an argument of collate="pack".
        ValueError: a setting is wrong. The message names the setting and its value.
        ImportError: torch is missing, or older than 2.2.

    Example:
        >>> import torch
        >>> def total(ids, mask):  # (batch, sequence) each; a torch.nn.Module, for instance
        ...     return (ids * mask).sum(1)
        >>> model = BatchedModel(total, collate="pad", mask="mask", pad_value=7)
        >>> with ThreadedStreamer(model, batch_size=64) as streamer:
        ...     streamer.predict([{"ids": torch.tensor([5, 3, 9])}, {"ids": torch.tensor([2, 7])}])
        [tensor(17), tensor(9)]
    """

    def __init__(
        self,
        model: Callable[..., Any],
        *,
        device: str | None = None,
        collate: Collate = "stack",
        pad_side: PadSide = "right",
        pad_value: float | Mapping[str, float] = 0,
        pad_to: Sequence[int] = (),
        batch_sizes: Sequence[int] = (),
        mask: str | None = None,
        lengths: str | None = None,
        trim: bool | Sequence[str] = False,
        key: Callable[[Any], Hashable] | None = None,
        output: Output = "tensor",
    ) -> None:
        if isinstance(model, NativeSource | BatchedModel):
            raise TypeError(
                f"a {type(model).__name__} makes its own batches: pass it to the streamer directly"
            )
        self._model = check_callable(model, "model")
        collating = collate_options(collate, pad_side, pad_to, batch_sizes)
        one_of("output", output, OUTPUTS)
        if trim and collate == "stack":
            raise wrong_option(f"trim={trim!r} needs collate='pad' or 'pack', not {collate!r}")
        padding: dict[str, Any] = {"mask": mask, "lengths": lengths}
        if collate == "pack":
            side = pad_side if pad_side != "right" else None
            padding |= {"pad_value": pad_value, "pad_to": pad_to, "batch_sizes": batch_sizes}
            padding["pad_side"] = side
        for option, value in padding.items():
            if value and collate != "pad":
                raise wrong_option(f"{option}={value!r} needs collate='pad', not {collate!r}")
        if mask is not None and mask == lengths:
            raise wrong_option(f"mask and lengths must have different names, not both {mask!r}")
        usual, by_name = pad_values(pad_value)
        self._key = check_key(key)
        self._device = check_device(device, model)
        self._moved = None if device is None else model
        self._packs = collate == "pack"
        self._splitter = Splitter(trim, pad_side, output, self._packs)
        self._options: dict[str, Any] = {
            **collating,
            "pad_value": usual,
            "pad_values": by_name,
            "mask": mask or "",
            "lengths": lengths or "",
            "pinned": self._device.startswith("cuda"),
        }
        self._in_process: tuple[Any, Placement] | None = None  # not pickled
        batching = load_batching(collate)
        if self._packs:
            batching.check_arguments(model)

    def __call__(self, batch: Sequence[Any]) -> list[Any]:
        """Run the callable on some items.

        Returns:
            A list with the output of each item, or an exception. An item gets an exception if it is
            invalid, if it failed in a batch of its own, or if the outputs of its batch have a wrong
            shape. With a single item, the exception is raised.
        """
        items = list(batch)
        if self._in_process is None:
            self._in_process = (
                self._batching().Batcher(self._options),
                Placement(self._device, self._moved),
            )
        batcher, placement = self._in_process
        keys, outputs = number_keys(self._key, items)
        groups = self._batching().Groups(batcher, items, keys)
        outputs.update(groups.refused)
        for number, places in enumerate(groups.places):
            try:
                placement.wait()  # the copy of the last batch still reads the memory
                rows = self._run(placement, groups.collate(number), len(places))
            except Exception as error:
                if len(places) == len(items) or not _is_final(error, len(places)):
                    raise
                error = detached(error)
                outputs.update((place, copy_error(error)) for place in places)
            else:
                outputs.update(zip(places, rows, strict=True))
        if len(items) == 1 and isinstance(outputs[0], Exception):
            raise outputs[0]
        return [outputs[place] for place in range(len(items))]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_in_process": None}

    def __repr__(self) -> str:
        way = "C++" if self._batching().__name__.endswith("._torch") else "torch"
        return (
            f"<{type(self).__name__} of {name_of(self._model)} on {self._device}, "
            f"batches made by {way}>"
        )

    def _batching(self) -> Any:
        return load_batching("pack" if self._packs else "stack")

    def _run(self, placement: Placement, collated: Any, count: int) -> list[Any]:
        import torch

        args, kwargs, size, lengths = collated
        model: Any = self._model
        rows = len(args[0] if args else next(iter(kwargs.values())))
        if self._packs:  # max_seqlen is no tensor, because kernels read it on the host
            model, rows = functools.partial(model, max_seqlen=max(lengths)), count
        with memory_errors(), torch.no_grad():
            output = placement.call(model, args, kwargs)
            sequences = None if lengths is None else Sequences(size, lengths)
            return self._splitter.split(output, count, rows, sequences)


def _is_final(error: Exception, count: int) -> bool:
    """True if the items of a failed group shall not run again; other groups go on."""
    if is_out_of_memory(error):  # a smaller batch may fit, and so may this group alone
        return False
    return count == 1 or isinstance(error, FAULTS_OF_THE_MODEL)
