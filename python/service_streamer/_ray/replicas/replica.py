"""The actor that runs the model."""

from __future__ import annotations

import json
import os
import pickle
import threading
import time
import traceback
from typing import Any

import ray
from ray import ObjectRef
from ray.exceptions import RayError

from ..._base.errors import OutputSizeMismatch, WorkerLost
from ..._base.model_errors import detached, is_out_of_memory
from ..._engine import lifecycle
from ..._engine.outputs import cut, rows
from ..._engine.pickling import as_array, pack_error, refuse_input, refuse_output
from ..._processes.init_failure import InitFailure
from ..payloads import Packed, PayloadReader, Store
from ..settings import RaySettings

Answer = tuple[bytes, list["ObjectRef[Any]"]]
"""a pickled `Outcome`, and the references in it"""


def launch(settings: RaySettings, output_batch: bool) -> Any:
    """Start an actor with a `Replica`, and return its handle. Does not wait."""
    others = {name: n for name, n in settings.demand.items() if name not in ("CPU", "GPU")}
    # One thread loads and runs the model, which may keep something of its thread. Two others watch.
    maker = ray.remote(concurrency_groups={"control": 2})(Replica).options(
        num_cpus=settings.num_cpus,
        num_gpus=settings.num_gpus,
        resources=others or None,
        runtime_env=settings.runtime_env,
        max_restarts=0,
        max_task_retries=0,
    )
    return maker.remote(output_batch)


class Replica:
    """Loads the model, and runs batches that the owner sends. One call of `predict` at a time.

    Args:
        output_batch: callers get slices of what the model returns.
    """

    def __init__(self, output_batch: bool) -> None:
        self._output_batch = output_batch
        self._ended = threading.Event()
        self._predict: Any = None

    def load(self, packed: bytes, batch_size: int) -> tuple[str, str]:
        """Load the model. Return what is known of this replica, and why it failed, or ""."""
        about = json.dumps({"pid": os.getpid(), "device": os.environ.get("CUDA_VISIBLE_DEVICES")})
        try:
            model = pickle.loads(packed)
            self._predict = model.load(None, batch_size)
        except BaseException as error:
            trace = error.__traceback__
            below = trace.tb_next if trace is not None else None
            text = "".join(traceback.format_exception(type(error), error, below))
            return about, InitFailure.of(error, text).note
        return about, ""

    @ray.method(concurrency_group="control")  # type: ignore[untyped-decorator]
    def watch(self) -> None:
        """Block until the end, so that the owner hears of it."""
        self._ended.wait()

    @ray.method(concurrency_group="control")  # type: ignore[untyped-decorator]
    def finish(self) -> None:
        """Close what the model has opened, before this process ends."""
        lifecycle.end_worker()
        self._ended.set()

    def predict(self, message: bytes, refs: list[ObjectRef[Any]]) -> Answer:
        """Run the model on the items of a batch.

        Args:
            message: a pickled pair: the items, and the number of the client of each.
            refs: the objects of the store that the items refer to.

        Returns:
            The pickle of ``(outputs, run seconds)``, or of ``(error, out of memory, is a fault of
            the model)``. An output is what a `Payload` is in a message, or a packed error, a list.
        """
        packed, clients = pickle.loads(message)
        loader = PayloadReader(refs)
        outputs: list[Any] = [None] * len(packed)
        items, places = [], []
        for place, each in enumerate(packed):
            try:
                items.append(loader.load(each))
                places.append(place)
            except RayError as error:  # as when the client that had put it has died
                text = f"a replica could not fetch an item of the request: {error}"
                outputs[place] = pack_error(WorkerLost(text))
            except BaseException as error:
                outputs[place] = pack_error(refuse_input(error))
        begun = time.perf_counter()
        try:
            results = self._split(self._predict(items), len(items)) if items else []
        except BaseException as error:
            failure = detached(error)
            faults = isinstance(failure, OutputSizeMismatch)
            kind = "fault" if faults else "memory" if is_out_of_memory(failure) else ""
            return pickle.dumps((pack_error(failure), kind), 5), []
        seconds = time.perf_counter() - begun
        del items
        made = _pack(results, [clients[place] for place in places])
        for place, output in zip(places, made[0], strict=True):
            outputs[place] = output
        return pickle.dumps((outputs, seconds), 5), made[1]

    def _split(self, outputs: Any, expected: int) -> list[Any]:
        """Return one output per item; with ``output="batch"``, a slice of one row."""
        array = as_array(outputs)
        outputs = outputs if array is None else array
        if self._output_batch:
            return cut(outputs, [1] * expected)
        return rows(outputs, expected)


def _pack(outputs: list[Any], clients: list[int]) -> tuple[list[Packed | list[Any]], list[Any]]:
    """Pickle the outputs. The large ones of each client are in an object of their own.

    So a client on another node fetches only its own outputs, and keeps only those in the store.
    """
    stores: dict[int, Store] = {}
    packed: list[Any] = []
    for output, client in zip(outputs, clients, strict=True):
        if isinstance(output, BaseException):
            packed.append(pack_error(detached(output)))
            continue
        try:
            packed.append(stores.setdefault(client, Store()).pack(output))
        except BaseException as error:
            packed.append(pack_error(refuse_output(error, output)))
    refs: list[Any] = []
    numbers: dict[int, int] = {}
    for client, store in stores.items():
        if (ref := store.put()) is not None:
            numbers[client] = len(refs)
            refs.append(ref)
    for place, (output, client) in enumerate(zip(packed, clients, strict=True)):
        if type(output) is int:
            packed[place] = (numbers[client], output)
    return packed, refs
