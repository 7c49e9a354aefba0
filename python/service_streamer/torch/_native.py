"""`NativeModel`: a model file that runs in C++ threads."""

from __future__ import annotations

import array
import itertools
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Literal, get_args

from .._base.grouping import Grouping
from .._base.messages import see, wrong_option
from .._base.options import count, one_of
from .._base.types import FileCollate
from .._engine.outputs import in_order
from .._models.native import NativeSource
from .._placement.machine import thread_count
from ._collate import PadSide, check_key, collate_options, pad_values
from ._devices import check_devices, find_devices
from ._errors import ModelFileError, SidecarError
from ._file import check_sources, device_of, is_script, unpack
from ._module import load_built_module, load_kernels, load_module
from ._sidecar import BATCH, Signature, TensorSpec, read_sidecar

Output = Literal["tensor", "numpy"]

OUTPUTS = get_args(Output)
PIPELINED = ("cuda",)  # device types that compute asynchronously


class NativeModel(NativeSource):
    """A compiled model that runs in C++ threads, which never take the GIL.

    Pass it to a `ThreadedStreamer` in place of a predict function.

    An item is the input of the model without the batch dimension: a tensor or array, or a tuple or
    mapping of them, as the signature says. Items must have exactly the types of the model's inputs,
    and only indices that its tables have, as far as the signature tells. They must not be changed
    until they are answered. A caller gets a tensor (or a tuple, list or dict of tensors) for each
    item: views of the outputs of the whole batch.

    A NativeModel can also be called with a list of items. It then runs in the calling thread, with
    the GIL released. So ``predict`` of a `ManagedModel` may call it.

    Args:
        path: an AOTInductor package (``.pt2``) or a TorchScript file (``.pt``).
        device: "cpu", "cuda:0", or several devices like ("cuda:0", "cuda:1"), which share the
            batches of one queue. On a GPU, a batch is collated and copied while the previous one is
            computed, and outputs are copied back while the next one is computed. Items may be
            tensors on the device; their outputs then stay there (with output="tensor").
        workers: the number of threads for each device. Each runs one batch at a time. A package is
            loaded so that all workers can run it in parallel, and one caller's thread as well.
        intra_op_threads: the number of threads that compute one batch. None: the number of cores
            divided by the number of workers. In a forked child it is 1.
        collate: "stack": only items of the same shape share a batch. "pad": items are padded to the
            longest in the batch.
        pad_side: "right" or "left": the side of the padding.
        pad_value: a number, or a dict with a number for each input whose padding is not 0.
        pad_to: sizes in ascending order. Items are padded up to the next of these sizes, so that
            the model sees few different shapes.
        batch_sizes: the same for the number of items. The last item is repeated to fill the batch;
            the repeated outputs are dropped.
        mask: the name of an input that is generated: 1 for the data of an item, 0 for padding. Only
            with collate="pad".
        lengths: the name of an input that is generated: the length of each item. Only with
            collate="pad".
        key: a function of an item: the ``key`` of the `ThreadedStreamer` that runs the model, and
            of calls.
        output: "tensor" or "numpy": the kind of result.
        warmup: batch sizes, for example 1 and ``batch_size``. Before its first batch, each worker
            runs batches of zeros of these sizes, for each size of ``pad_to``.
            ``streamer.wait_ready()`` waits for that.
        signature: the content of the file ``<path>.json``, for a model without that file. See
            `service_streamer.torch.compile`.

    Raises:
        FileNotFoundError: the file does not exist.
        ModelFileError: the file is not a model, is damaged, or is for another machine or device.
        SidecarError: the description of the model is missing or wrong.
        ValueError: a setting is wrong. The message names the setting and its value.
        ImportError: torch is missing or older than 2.10. Or the file is TorchScript, and the module
            for it is missing or was built for another version of torch.

    Example:
        >>> import torch
        >>> class Encoder(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.embed = torch.nn.Embedding(1000, 32)
        ...
        ...     def forward(self, ids, mask):  # (batch, sequence) each
        ...         return (self.embed(ids) * mask[:, :, None]).sum(1)
        >>> example = (torch.ones(8, 64, dtype=torch.int64), torch.ones(8, 64, dtype=torch.int64))
        >>> sidecar = compile(Encoder().eval(), example, "encoder.pt2", max_batch=64, sequence=512)
        >>> model = NativeModel("encoder.pt2", collate="pad", mask="mask")
        >>> with ThreadedStreamer(model, batch_size=64) as streamer:
        ...     outputs = streamer.predict([(torch.tensor([5, 3, 9]),), (torch.tensor([2, 7]),)])
        >>> [output.shape for output in outputs]
        [torch.Size([32]), torch.Size([32])]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        device: str | Sequence[str] = "cpu",
        workers: int = 1,
        intra_op_threads: int | None = None,
        collate: FileCollate = "stack",
        pad_side: PadSide = "right",
        pad_value: float | Mapping[str, float] = 0,
        pad_to: Sequence[int] = (),
        batch_sizes: Sequence[int] = (),
        mask: str | None = None,
        lengths: str | None = None,
        key: Callable[[Any], Hashable] | None = None,
        output: Output = "tensor",
        warmup: Sequence[int] = (),
        signature: Mapping[str, Any] | None = None,
    ) -> None:
        if str(collate) == "pack":  # not a FileCollate
            raise wrong_option(
                "collate='pack' is for a BatchedModel: the inputs of a file begin with the "
                "dimension of the batch, so use collate='pad'"
            )
        one_of("collate", collate, get_args(FileCollate))
        collating = collate_options(collate, pad_side, pad_to, batch_sizes)
        one_of("output", output, OUTPUTS)
        self._key = check_key(key)
        device_names = check_devices(device)
        self._workers = count("workers", workers) * len(device_names)
        if intra_op_threads is None:
            intra_op_threads = max(1, thread_count() // self._workers)
        count("intra_op_threads", intra_op_threads)
        self._path = os.fspath(path)
        self._script = script = is_script(path)
        self.signature = (
            read_sidecar(path) if signature is None else Signature.from_dict(signature, "signature")
        )
        self.generated = {mask, lengths}
        self.pads = collate == "pad"
        device_type = device_names[0].partition(":")[0]
        self.intra_op_threads = intra_op_threads if device_type == "cpu" else None
        self._check_device(device_type, script)
        if not script:
            check_sources(self._path, self.signature)
        self._devices = find_devices(device_names)
        symbols = [name for name in self.signature.dims if name != BATCH]
        if output == "numpy" and any(spec.dtype == "bfloat16" for spec in self.signature.outputs):
            raise wrong_option(
                'output="numpy" is not possible: numpy has no bfloat16, use output="tensor"'
            )
        kernels = load_kernels() if device_type == "cuda" else None
        self._module = load_built_module() if script else kernels or load_module()
        self._options: dict[str, Any] = {
            "devices": self._devices,
            "pipelined": device_type in PIPELINED,
            # one for each batch in flight, and one for calls in the caller's thread
            "runners": count("workers", workers) * (2 if device_type in PIPELINED else 1) + 1,
            "intra_op_threads": intra_op_threads,
            "numpy": output == "numpy",
            "warmup": [count("warmup", items) for items in warmup],
            "symbols": [(name, *self.signature.dims[name]) for name in symbols],
            "inputs": [_plain(spec) for spec in self.signature.inputs],
            "outputs": [_plain(spec) for spec in self.signature.outputs],
            "input_structure": self.signature.input_structure,
            "output_structure": self.signature.output_structure,
            "output_type": self._output_type(),
            "min_batch": self.signature.dims[BATCH][0],
            "max_batch": self.signature.max_batch,
            **collating,
            "pad_values": self._pad_values(pad_value, collate == "pad"),
            "mask": self._generated_input("mask", mask, collate, symbols, ("batch", *symbols[:1])),
            "lengths": self._generated_input("lengths", lengths, collate, symbols, ("batch",)),
        }
        self.check_batch_size(max(self._options["warmup"], default=1))
        self._owner = os.getpid()
        self._capsule = self._make_capsule()
        try:
            self._module.load(self._capsule)
        except RuntimeError as error:
            raise ModelFileError(self._path, f"cannot be loaded: {error}") from error

    def __call__(self, batch: Sequence[Any]) -> Any:
        """Run the model on at most ``max_batch`` items in the calling thread.

        Returns:
            A list with the outputs of each item.

        Raises:
            TypeError, ValueError: an item does not fit the signature. The message names the input.
            RuntimeError: the model raised.
        """
        items = tuple(batch)
        if not items:
            return []
        self.check_batch_size(len(items))
        if self._key is None:
            return self._module.run(self.capsule(), items, False)
        ordered, (packed, _, order) = Grouping(self._key, None).group(items)
        keys = iter(array.array("Q", packed or b""))
        outputs: list[Any] = []
        for _, alike in itertools.groupby(ordered, key=lambda _: next(keys)):
            outputs += self._module.run(self.capsule(), tuple(alike), False)
        return outputs if order is None else in_order(outputs, order)

    @property
    def key(self) -> Callable[[Any], Hashable] | None:
        return self._key

    @property
    def workers(self) -> int:
        return self._workers

    def capsule(self) -> Any:
        if self._owner != os.getpid():
            if self._devices != ["cpu"]:
                raise RuntimeError(
                    f"{self._path} was loaded for {', '.join(self._devices)} before this process "
                    "was forked. CUDA does not work after a fork: make the NativeModel in the child"
                )
            # Threads of the parent may have been using the old model, so the child loads a new one
            # on first use. With more threads OpenMP would wait for those of the parent.
            self._module.renew_process_lock()
            self.intra_op_threads = self._options["intra_op_threads"] = 1
            self._capsule = self._make_capsule()
            self._owner = os.getpid()
        return self._capsule

    def check_batch_size(self, batch_size: int) -> None:
        if batch_size > self.signature.max_batch:
            raise wrong_option(
                f"batch_size={batch_size} is more than the {self.signature.max_batch} items that "
                f"{self._path} accepts"
            )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path}: workers={self._workers}>"

    def __reduce__(self) -> tuple[Any, ...]:
        text = (
            "a NativeModel cannot be pickled: make one in each process, in init_model() of a "
            "ManagedModel"
        )
        raise TypeError(see(text, "a-streamer-that-is-pickled"))

    def _make_capsule(self) -> Any:
        path, folder = (self._path, None) if self._script else unpack(self._path)
        return self._module.make_model({**self._options, "path": path, "folder": folder})

    def _check_device(self, device: str, script: bool) -> None:
        compiled_for = self.signature.device if script else device_of(self._path)
        if compiled_for not in (None, device):
            raise ModelFileError(self._path, f"was compiled for {compiled_for}, not for {device}")

    def _pad_values(self, given: float | Mapping[str, float], used: bool) -> list[float]:
        default, by_name = pad_values(given)
        names = [spec.name for spec in self.signature.inputs]
        for name in by_name:
            if name not in names:
                known = ", ".join(names)
                raise wrong_option(f"pad_value must name an input of {known}, not {name!r}")
        for spec in self.signature.inputs:
            value = by_name.get(spec.name, default)
            if used and spec.values is not None and not spec.values[0] <= value <= spec.values[1]:
                low, high = spec.values
                raise wrong_option(
                    f"pad_value must be {low} to {high} for the input {spec.name!r}, not {value:g}"
                )
        return [by_name.get(name, default) for name in names]

    def _output_type(self) -> Any:
        """The class that makes the outputs of a tuple; None: a plain tuple."""
        name = self.signature.output_type
        if name is None:
            return None
        import torch

        found = getattr(torch.return_types, name.rpartition(".")[2], None)
        if getattr(found, "n_fields", 0) != len(self.signature.outputs):
            outputs = len(self.signature.outputs)
            raise SidecarError(
                self._path, "output_type", f"must be a class of torch with {outputs} fields: {name}"
            )
        return found

    def _generated_input(
        self,
        option: str,
        name: str | None,
        collate: str,
        symbols: list[str],
        shape: tuple[Any, ...],
    ) -> int:
        """The index of a generated input, or -1 if there is none."""
        if name is None:
            return -1
        if collate != "pad" or len(symbols) != 1:
            raise wrong_option(
                f"{option}={name!r} needs collate='pad', and a model with one dimension that "
                f"varies besides the batch, not {symbols}"
            )
        names = [spec.name for spec in self.signature.inputs]
        if name not in names:
            raise wrong_option(f"{option} must be one of the inputs {names}, not {name!r}")
        index = names.index(name)
        spec = self.signature.inputs[index]
        if spec.shape != shape:
            raise wrong_option(f"{option}={name!r} must have the shape {shape}, not {spec.shape}")
        if option == "lengths" and spec.dtype not in ("int32", "int64"):
            raise wrong_option(f"{option}={name!r} must be int32 or int64, not {spec.dtype}")
        return index


def _plain(spec: TensorSpec) -> tuple[Any, ...]:
    # Only dimension 0 is the batch. The size of another dimension named "batch" is unknown.
    sizes = tuple(None if n == BATCH else n for n in spec.shape[1:])
    return spec.name, spec.dtype, sizes, spec.values
