"""`NativeModel`: a model file that C++ threads run."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from .._native import NativeSource
from .._options import count, one_of
from ._collate import check_key, collate_options, pad_values
from ._devices import check_devices, find_devices
from ._errors import ModelFileError
from ._file import device_of, is_script
from ._module import load_module
from ._sidecar import BATCH, Signature, TensorSpec, read_sidecar

OUTPUTS = ("tensor", "numpy")
PIPELINED = ("cuda",)  # types of devices that compute beside the thread that asks them to


class NativeModel(NativeSource):
    """A compiled model that C++ threads run on batches, without ever taking the GIL.

    Give it to a `ThreadedStreamer` in place of a predict function::

        model = NativeModel("encoder.pt2", collate="pad", mask="attention_mask")
        streamer = ThreadedStreamer(model, batch_size=64)
        embeddings = streamer.predict([{"ids": ids} for ids in tokenized])

    An item is what the model takes, without the batch dimension: a tensor or array, or a tuple or
    dict of them as the model's description has it. Items must have the very types of the model's
    inputs, and must not be changed until they are answered. A caller gets a tensor (tuple, list,
    dict of tensors) for each item: views of the outputs of the whole batch.

    It can be called as well, with a list of items: that runs in the calling thread, whose GIL is
    released meanwhile. So it may also be what ``predict`` of a `ManagedModel` calls.

    Args:
        path: a package of AOTInductor (``.pt2``), or a file of TorchScript (``.pt``).
        device: where it runs: "cpu", "cuda:0", or several like ("cuda:0", "cuda:1"), among which
            the batches of one queue are shared out. On a GPU a batch is collated and copied while
            the one before it is computed, and its outputs come back while the next one is. Items
            may lie there as tensors; then their outputs stay there (with output="tensor").
        workers: threads that run it, each with a batch of its own; so many for each device.
            A package is loaded so that as many run at a time, and one more for calls in a caller's
            thread.
        intra_op_threads: threads that one batch is computed with; None: the cores shared out
            among the workers. In a forked child it is 1.
        collate: "stack": the items of a batch have the same shape; those of other shapes are run in
            batches of their own. "pad": they are padded to the longest of the batch.
        pad_side: where: "right" or "left" of what there is.
        pad_value: with what: a number, or a dict with one for each input that wants another than 0.
        pad_to: sizes, ascending, that padding goes up to, so that there are few different shapes.
        batch_sizes: the same for the number of items: the last is repeated, and left out of the
            outputs.
        mask: the input that is made here when items are padded: 1 where an item has something.
        lengths: the input that is made here: how long each item is.
        key: a function of an item that gives something hashable: only items of equal keys are run
            together. Called in the caller's thread, who gets what it raises.
        output: "tensor", or "numpy": callers get arrays.
        warmup: numbers of items, say 1 and ``batch_size``: each worker runs as many, of zeros, in
            all sizes of ``pad_to``, before its first batch. ``streamer.wait_ready()`` waits for it.
        signature: what the model takes and gives, as in the file ``<path>.json`` that
            `service_streamer.torch.compile` writes, for a model without that file.

    Raises:
        FileNotFoundError: there is no such file.
        ModelFileError: it is no model, damaged, or for another machine or device.
        SidecarError: what describes the model is missing or wrong.
        ValueError: a setting is wrong; the message names it and its value.
        ImportError: torch is missing, or the module for it is, or is built for another torch.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        device: str | Sequence[str] = "cpu",
        workers: int = 1,
        intra_op_threads: int | None = None,
        collate: str = "stack",
        pad_side: str = "right",
        pad_value: float | Mapping[str, float] = 0,
        pad_to: Sequence[int] = (),
        batch_sizes: Sequence[int] = (),
        mask: str | None = None,
        lengths: str | None = None,
        key: Callable[[Any], Hashable] | None = None,
        output: str = "tensor",
        warmup: Sequence[int] = (),
        signature: Mapping[str, Any] | None = None,
    ) -> None:
        collating = collate_options(collate, pad_side, pad_to, batch_sizes)
        one_of("output", output, OUTPUTS)
        self._key = check_key(key)
        device_names = check_devices(device)
        self._workers = count("workers", workers) * len(device_names)
        if intra_op_threads is None:
            intra_op_threads = max(1, len(os.sched_getaffinity(0)) // self._workers)
        count("intra_op_threads", intra_op_threads)
        self._path = os.fspath(path)
        script = is_script(path)
        self.signature = (
            read_sidecar(path) if signature is None else Signature.from_dict(signature, "signature")
        )
        device_type = device_names[0].partition(":")[0]
        self._check_device(device_type, script)
        self._devices = find_devices(device_names)
        symbols = [name for name in self.signature.dims if name != BATCH]
        if output == "numpy" and any(spec.dtype == "bfloat16" for spec in self.signature.outputs):
            raise ValueError('output="numpy" is not possible: numpy has no bfloat16')
        self._options: dict[str, Any] = {
            "path": self._path,
            "script": script,
            "devices": self._devices,
            "pipelined": device_type in PIPELINED,
            # as many as a device can have under way, and one for calls in the caller's thread
            "runners": count("workers", workers) * (2 if device_type in PIPELINED else 1) + 1,
            "intra_op_threads": intra_op_threads,
            "numpy": output == "numpy",
            "warmup": [count("warmup", items) for items in warmup],
            "symbols": [(name, *self.signature.dims[name]) for name in symbols],
            "inputs": [_plain(spec) for spec in self.signature.inputs],
            "outputs": [_plain(spec) for spec in self.signature.outputs],
            "input_structure": self.signature.input_structure,
            "output_structure": self.signature.output_structure,
            "least_batch": self.signature.dims[BATCH][0],
            "most_batch": self.signature.max_batch,
            **collating,
            "pad_values": self._pad_values(pad_value),
            "mask": self._made_input("mask", mask, collate, symbols, ("batch", *symbols[:1])),
            "lengths": self._made_input("lengths", lengths, collate, symbols, ("batch",)),
            "key": self._weak_key(),
        }
        self.check_batch_size(max(self._options["warmup"], default=1))
        self._owner = os.getpid()
        self._capsule = load_module().make_model(self._options)
        try:
            load_module().load(self._capsule)
        except RuntimeError as error:
            raise ModelFileError(self._path, f"cannot be loaded: {error}") from error

    def __call__(self, batch: Sequence[Any]) -> Any:
        """Run it on some items, at most ``max_batch``, in the calling thread.

        Returns:
            A list with the outputs of each item.

        Raises:
            TypeError, ValueError: an item is none of the model's; the message names the input.
            RuntimeError: what the model raised.
        """
        items = tuple(batch)
        if not items:
            return []
        self.check_batch_size(len(items))
        return load_module().run(self.capsule(), items, False)

    @property
    def workers(self) -> int:
        return self._workers

    def capsule(self) -> Any:
        if self._owner != os.getpid():
            if self._devices != ["cpu"]:
                raise RuntimeError(
                    f"{self._path} was loaded for {', '.join(self._devices)} before this process "
                    "was forked, where CUDA does not work: make the NativeModel after the fork"
                )
            # What a thread of the parent may have been at is left alone; it is loaded when it is
            # first needed. OpenMP has no threads here, and would wait for them.
            load_module().renew_process_lock()
            self._options["intra_op_threads"] = 1
            self._capsule = load_module().make_model(self._options)
            self._owner = os.getpid()
        return self._capsule

    def check_batch_size(self, batch_size: int) -> None:
        if batch_size > self.signature.max_batch:
            raise ValueError(
                f"batch_size={batch_size} is more than the {self.signature.max_batch} items that "
                f"{self._path} takes at a time"
            )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path}: workers={self._workers}>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a NativeModel cannot be pickled: make one in each process, in init_model of a "
            "ManagedModel"
        )

    def _check_device(self, device: str, script: bool) -> None:
        compiled_for = self.signature.device if script else device_of(self._path)
        if compiled_for not in (None, device):
            raise ModelFileError(self._path, f"is compiled for {compiled_for}, not for {device}")

    def _weak_key(self) -> Callable[[Any], Hashable] | None:
        """Make what the extension module calls: nothing that it has may keep this model."""
        if self._key is None:
            return None
        reference = weakref.ref(self)

        def key_of(item: Any) -> Hashable:
            model = reference()
            return model._key(item) if model is not None and model._key is not None else None

        return key_of

    def _pad_values(self, given: float | Mapping[str, float]) -> list[float]:
        usual, by_name = pad_values(given)
        names = [spec.name for spec in self.signature.inputs]
        for name in by_name:
            if name not in names:
                raise ValueError(f"pad_value: the model has no input {name!r}")
        return [by_name.get(name, usual) for name in names]

    def _made_input(
        self,
        option: str,
        name: str | None,
        collate: str,
        symbols: list[str],
        shape: tuple[Any, ...],
    ) -> int:
        """The place of an input that is made here; -1: there is none."""
        if name is None:
            return -1
        if collate != "pad" or len(symbols) != 1:
            raise ValueError(
                f"{option}={name!r} needs collate='pad', and a model with one dimension that "
                f"varies besides the batch; this one has {symbols}"
            )
        names = [spec.name for spec in self.signature.inputs]
        if name not in names:
            raise ValueError(f"{option} must be one of the inputs {names}, not {name!r}")
        place = names.index(name)
        spec = self.signature.inputs[place]
        if spec.shape != shape:
            raise ValueError(f"{option}={name!r} must have the shape {shape}, not {spec.shape}")
        if option == "lengths" and spec.dtype not in ("int32", "int64"):
            raise ValueError(f"{option}={name!r} must be int32 or int64, not {spec.dtype}")
        return place


def _plain(spec: TensorSpec) -> tuple[str, str, tuple[int | str | None, ...]]:
    # a dimension that is as large as the batch is not the batch: nothing is known of it
    return spec.name, spec.dtype, tuple(None if n == BATCH else n for n in spec.shape[1:])
