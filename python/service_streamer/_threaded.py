"""ThreadedStreamer: the model runs in threads of this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._backend import Backend
from ._model import check_callable, is_managed, name_of
from ._native import NativeSource, NativeWorkers
from ._options import Options, warn_of_long_latency
from ._streamer import BaseStreamer
from ._worker import Workers


class ThreadedStreamer(BaseStreamer):
    """Collects the requests of many callers into batches for one Python callable.

    Replace ``model.predict(batch)`` by ``streamer.predict(batch)``: a worker thread calls
    ``predict_function`` with the items of all that wait, at most ``batch_size``, and every caller
    gets its own part of the outputs::

        streamer = ThreadedStreamer(model.predict, batch_size=64)
        outputs = streamer.predict(["one item", "another"])

    Given a `service_streamer.torch.NativeModel`, C++ threads run that, and never take the GIL. With
    ``collate`` or ``device`` it is a callable on batched tensors, a ``torch.nn.Module`` say, and
    the items are tensors: short for a `service_streamer.torch.BatchedModel` of it, which has more
    settings.

    Args:
        predict_function: called with a list of items; returns a sequence with one output per item
            (list, tuple, numpy array, tensor). An exception instance as an output is raised to
            the caller of that request. Or a native model.
        batch_size: most items per batch.
        max_latency: seconds that a request may wait for company when the worker could take it.
            0: never, which is the policy "greedy".
        worker_timeout: seconds that `predict` and `apredict` may take; None: no limit.
        policy: "adaptive": an idle worker takes what is there at once, or waits shortly for
            callers that are about to return; "greedy": never wait; "window": collect until the
            batch is full or its first item has waited ``max_latency``.
        max_queue: most items in the queue; None: 1024 batches. An empty queue takes any request,
            also one with more items than that.
        overflow: what happens when the queue is full: "block" the caller, or "reject" its request
            with `QueueFull`.
        output: "items": callers get a list of outputs; "batch": a slice of what
            ``predict_function`` returned.
        isolate_errors: when a batch raises, run it again in parts so that only the guilty requests
            fail; a batch too large for the memory is then answered in parts.
        isolation_budget: most time for that once more than a quarter of the requests are guilty, in
            multiples of the time that the batch took; then the rest run one by one, after all that
            waits.
        collate: "stack" tensors of one shape, or "pad" sequences to the longest of the batch.
        device: "cpu", or a GPU as "cuda:0", where the batches and the module are brought to; None:
            the batches to where the module is.

    Raises:
        TypeError: ``predict_function`` is not callable.
        ValueError: a setting is wrong; the message names it and its value.
        ImportError: ``collate`` or ``device`` is given, and torch is missing, or the module for it.
    """

    def __init__(
        self,
        predict_function: Callable[[list[Any]], Any] | NativeSource,
        batch_size: int,
        max_latency: float = 0.1,
        worker_timeout: float | None = 20,
        *,
        policy: str = "adaptive",
        max_queue: int | None = None,
        overflow: str = "block",
        output: str = "items",
        isolate_errors: bool = True,
        isolation_budget: float = 8,
        collate: str | None = None,
        device: str | None = None,
    ) -> None:
        if is_managed(predict_function):
            name = name_of(predict_function)
            raise TypeError(
                f"predict_function must be a function, not the class {name}: make and initialise "
                "a model, and pass its predict method, or use Streamer, whose workers do that"
            )
        predict_function = check_callable(predict_function, "predict_function")
        if collate is not None or device is not None:
            from .torch import BatchedModel  # without these nothing of torch's is needed

            predict_function = BatchedModel(
                predict_function, collate="stack" if collate is None else collate, device=device
            )
        self._predict_function = predict_function
        options = Options(
            batch_size=batch_size,
            max_latency=max_latency,
            worker_timeout=worker_timeout,
            policy=policy,
            max_queue=max_queue,
            overflow=overflow,
            output=output,
            isolate_errors=isolate_errors,
            isolation_budget=isolation_budget,
        )
        warn_of_long_latency(options.max_latency)
        if isinstance(predict_function, NativeSource):
            predict_function.check_batch_size(options.batch_size)
        super().__init__(options, self._make_backend(options))

    def _backend_in_child(self) -> Backend:
        return self._make_backend(self._options)

    def _make_backend(self, options: Options) -> Backend:
        if isinstance(self._predict_function, NativeSource):
            return NativeWorkers(self._predict_function, options)
        return Workers(self._predict_function, options, count=1)

    def _name(self) -> str:
        return f"{type(self).__name__}({name_of(self._predict_function)})"
