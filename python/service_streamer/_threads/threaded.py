"""ThreadedStreamer: the model runs in threads of this process."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, overload

from .._base.loadable import loadables
from .._base.messages import wrong_option
from .._base.option_names import REQUIRED, known_options
from .._base.options import Options, count, options_of, warn_of_long_latency
from .._base.types import (
    AsyncGenerate,
    AsyncPredict,
    Collate,
    EngineOptions,
    FilePath,
    Generate,
    Item,
    Output,
    P,
    Piece,
    Predict,
    R,
    Result,
    T,
    ThreadedOptions,
    V,
)
from .._engine.backend import Backend
from .._models.model import (
    check_callable,
    is_async,
    is_managed,
    makes_steps,
    name_of,
    no_model,
    streams_async,
    warn_of_single_items,
)
from .._models.native import NativeSource
from .._placement.cores import complaint, remedy_of
from .._streamers.streamer import BaseStreamer
from .worker import Workers

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._models.step_model import StepModel
    from .._statistics.stats import StreamerStats


class ThreadedStreamer(BaseStreamer[Item, Result, Piece]):
    """Collects the requests of many callers into batches for one Python callable.

    Replace ``model.predict(batch)`` by ``streamer.predict(batch)``. A worker thread of this process
    calls ``predict_function`` with the items of all waiting requests, at most ``batch_size`` at a
    time. Each caller receives the outputs of its own items.

    If ``predict_function`` is a `service_streamer.torch.NativeModel`, C++ threads run it and never
    take the GIL. If ``collate`` or ``device`` is given, ``predict_function`` takes batched tensors
    (a ``torch.nn.Module``, for instance) and the items are tensors. This is a short form of
    `service_streamer.torch.BatchedModel`, which has more settings.

    If ``predict_function`` is ``async def``, an event loop in a thread of its own runs it, with
    ``max_concurrent_batches`` batches at the same time. When all requests of a batch have ended,
    its task is cancelled. Tasks have copies of the context variables of the thread that creates
    the streamer. An async generator function streams.

    For type checkers a streamer has three parameters: the type of an item, of what `predict`
    returns, and of what `stream` yields. They come from the annotations of ``predict_function``.

    Args:
        predict_function: takes a list of items and returns a sequence with one output per item
            (list, tuple, numpy array or tensor). If an output is an exception instance, it is
            raised to the caller of that request. A native model and a `StepModel` are accepted too.
        batch_size: most items per call of ``predict_function``.
        max_latency: most seconds that a request waits for others to join its batch while a worker
            could take it. 0 means never, as with the policy "greedy".
        worker_timeout: seconds after which `predict` and `apredict` raise `RequestTimeout`. None:
            no limit.
        policy: when a batch goes to an idle worker. "adaptive": at once, or after a short wait for
            callers that are about to send their next request. "greedy": always at once. "window":
            when it is full, or its oldest item has waited ``max_latency``.
        ageing: seconds of waiting after which a request counts as one priority higher, so that a
            low priority does not starve. None: never.
        key: a function of an item that returns something hashable, or an attribute name. Only
            items with equal keys share a batch. The oldest request decides which key goes next.
            A ``NativeModel`` may have its own.
        weight: a function of an item that returns a number of at least 0 (tokens, pixels, bytes),
            or the name of an attribute. Needs ``max_weight`` or ``bucket``.
        max_weight: the most that the items of a batch may weigh together. An item that is heavier
            runs alone. ``batch_size`` remains the bound of their number. Of a `StepModel`: the most
            that the items with a state may weigh together.
        padded: a batch weighs its number of items times the weight of the heaviest, as it does if
            items are padded to one length.
        strict_weight: `predict` and `submit` raise ValueError for an item that is heavier than
            ``max_weight``.
        bucket: ascending bounds of the weight, at most 63, such as (64, 128, 256). They divide the
            items into buckets of similar weight. A batch has items of several buckets only if their
            padding is expected to take less time than further batches.
        max_queue: most items in the queue, of each priority together with the higher ones. None:
            1024 * ``batch_size``. If nothing of its priority or a higher one is queued, a request
            of any size is accepted.
        max_queue_weight: the most that the items in the queue may weigh together, in the same way,
            by ``weight``. None: no limit but ``max_queue``.
        tenants: the shares of tenants by name, and "*" for all others. While several tenants have
            queued requests of one priority, the items of each batch are divided by their shares.
            Without "*", other names raise ValueError. None: all have the same share.
        max_queue_per_tenant: most items of one tenant in the queue. None: no limit but
            ``max_queue``.
        overflow: when the queue is full, "block" makes the caller wait for room, and "reject"
            raises `QueueFull`.
        slo: the time in seconds, from arrival to output, that 99 % of the answered requests should
            keep. A request that would take longer raises `QueueFull` at once, or as soon as this is
            known. None: no target.
        output: "items": callers get a list of outputs. "batch": callers get a slice of the value
            that ``predict_function`` returned, such as an array or tensor.
        copy_outputs: copy arrays and tensors that ``predict_function`` returns and still refers to,
            such as views of a buffer that it fills again for the next batch. Others are not copied.
            False: callers get what it returned, also if it changes that later.
        isolate_errors: if a batch raises, run it again in parts, so that only the requests that
            raise on their own fail. A batch that does not fit into memory is run
            in parts too.
        isolation_budget: limits the time of these extra runs once more than a quarter of the
            requests of the batch have failed. The unit is the run time of the batch. After that the
            remaining requests run one at a time, behind all others in the queue.
        coalesce: compute equal items that are queued or running once, and answer all their callers.
            True: str, bytes, numbers, arrays and tensors on the CPU, and tuples of these, equal by
            type and value; others are equal to none. A function of an item: returns its identity,
            or None for an item that is equal to none. "copy": as True, and each caller gets a deep
            copy of the output. Otherwise the callers share one output. Do not change an item, also
            after a time-out, while others may wait for it. Not with ``slo``.
        cache: the bounds of a cache of outputs, a `Cache`. None: no cache. Equal items are
            coalesced, too.
        collate: how items become one tensor. "stack": tensors of one shape. "pad": sequences,
            padded to the longest of the batch. "pack": sequences, joined without padding.
        device: "cpu", or a GPU such as "cuda:0"; the module and the batches are moved there. None:
            batches are moved to the device of the module.
        worker_num: the number of threads that call ``predict_function``, also at the same time.
            More than one helps a function that releases the GIL or waits.
        max_concurrent_batches: the number of batches that an async ``predict_function`` has at the
            same time, 1 by default. Each takes a thread, which sleeps.
        options: a TOML file with a table ``[options]``, which has more of these options, such as
            ``batch_size``. What the call gives wins.

    Raises:
        TypeError: ``predict_function`` is not callable.
        ValueError: a setting is invalid. The message names the setting and its value, and the file.
        FileNotFoundError: there is no file ``options``.
        ImportError: ``collate`` or ``device`` is given, and torch is missing, or older than 2.2.

    Example:
        >>> def predict(texts):  # your model: a list of items in, one output per item out
        ...     return [text.upper() for text in texts]
        >>> with ThreadedStreamer(predict, batch_size=64) as streamer:
        ...     streamer.predict(["one item", "another"])
        ['ONE ITEM', 'ANOTHER']
    """

    @overload
    def __init__(
        self: ThreadedStreamer[Any, Any, Any],
        predict_function: NativeSource,
        batch_size: int,
        max_latency: float = ...,
        worker_timeout: float | None = ...,
        *,
        output: Output = ...,
        **options: Unpack[ThreadedOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: ThreadedStreamer[T, list[R], R],
        predict_function: Predict[T, R] | AsyncPredict[T, R],
        batch_size: int,
        max_latency: float = ...,
        worker_timeout: float | None = ...,
        *,
        output: Literal["items"] = ...,
        **options: Unpack[ThreadedOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: ThreadedStreamer[T, list[list[P]], P],
        predict_function: Generate[T, P] | AsyncGenerate[T, P] | StepModel[T, P],
        batch_size: int,
        max_latency: float = ...,
        worker_timeout: float | None = ...,
        *,
        output: Literal["items"] = ...,
        **options: Unpack[ThreadedOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: ThreadedStreamer[T, V, Any],
        predict_function: Callable[[list[T]], Awaitable[V]],
        batch_size: int,
        max_latency: float = ...,
        worker_timeout: float | None = ...,
        *,
        output: Literal["batch"],
        **options: Unpack[ThreadedOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: ThreadedStreamer[T, V, Any],
        predict_function: Callable[[list[T]], V],
        batch_size: int,
        max_latency: float = ...,
        worker_timeout: float | None = ...,
        *,
        output: Literal["batch"],
        **options: Unpack[ThreadedOptions],
    ) -> None: ...
    @overload  # with a file, which may set `output`
    def __init__(
        self: ThreadedStreamer[Any, Any, Any],
        predict_function: Callable[[list[Any]], Any] | NativeSource | StepModel,
        batch_size: int = ...,
        max_latency: float = ...,
        worker_timeout: float | None = ...,
        *,
        options: FilePath | None,
        output: Output = ...,
        **others: Unpack[ThreadedOptions],
    ) -> None: ...
    @known_options
    def __init__(
        self,
        predict_function: Callable[[list[Any]], Any] | NativeSource | StepModel,
        batch_size: int = REQUIRED,
        max_latency: float = 0.1,
        worker_timeout: float | None = 20,
        *,
        output: Output = "items",
        copy_outputs: bool = True,
        collate: Collate | None = None,
        device: str | None = None,
        worker_num: int = 1,
        max_concurrent_batches: int | None = None,
        options: FilePath | None = None,
        **engine: Unpack[EngineOptions],
    ) -> None:
        if is_managed(predict_function):
            name = name_of(predict_function)
            what = "it" if makes_steps(predict_function) else "its predict method"
            raise no_model(
                f"predict_function must be a function, not the class {name}: create and "
                f"initialise a model and pass {what}, or use Streamer, whose workers do that"
            )
        model: Any = predict_function
        batched = collate is not None or device is not None
        if not makes_steps(model):
            check_callable(model, "predict_function", may_be_async=True)
        elif batched:
            raise wrong_option(
                "collate and device are not for a StepModel: leave them out", TypeError
            )
        self._context: contextvars.Context | None = None  # of the batches of an async model
        if is_async(model):
            if batched:
                raise wrong_option(
                    f"collate and device are not for the async {name_of(model)}: leave them out",
                    TypeError,
                )
            self._context = contextvars.copy_context()
            worker_num = _concurrent_batches(model, worker_num, max_concurrent_batches)
        elif max_concurrent_batches is not None:
            raise wrong_option(
                f"max_concurrent_batches={max_concurrent_batches!r} is for an async "
                f"predict_function, and {name_of(model)} is none: use worker_num for more threads"
            )
        if batched:
            from ..torch import BatchedModel  # imported only if needed: it requires torch

            collate = "stack" if collate is None else collate
            model = BatchedModel(model, collate=collate, device=device)
        self._predict_function = model
        self._worker_num = count("worker_num", worker_num)
        if makes_steps(model) and self._worker_num != 1:
            raise wrong_option(
                f"worker_num={worker_num}: one thread runs a StepModel, so leave it out"
            )
        if isinstance(model, NativeSource) and model.key is not None:
            if engine.get("key") is not None:
                raise wrong_option(
                    "key is given twice, for the model and for the streamer: leave one out"
                )
            engine["key"] = model.key
        settings = options_of(
            batch_size=batch_size,
            max_latency=max_latency,
            worker_timeout=worker_timeout,
            output=output,
            copy_outputs=copy_outputs,
            **engine,
        )
        warn_of_long_latency(settings.max_latency)
        if not isinstance(model, NativeSource):
            if not streams_async(model):
                warn_of_single_items(model, settings.batch_size, self._worker_num)
        else:
            if self._worker_num != 1:
                raise wrong_option(
                    f"worker_num={worker_num}: a native model has its own, give them to the model"
                )
            model.check_batch_size(settings.batch_size)
        for part in loadables(model):
            part.load(self._worker_num)
        super().__init__(settings, self._make_backend(settings))

    @property
    def is_native(self) -> bool:
        """True if C++ threads run the model."""
        return isinstance(self._predict_function, NativeSource)

    def _backend_in_child(self) -> Backend:
        return self._make_backend(self._options)

    def _make_backend(self, options: Options) -> Backend:
        if isinstance(self._predict_function, NativeSource):
            from .native import NativeWorkers  # as below: only needed for a native model

            return NativeWorkers(self._predict_function, options)
        if makes_steps(self._predict_function):
            from .step_workers import StepWorkers  # only needed here

            return StepWorkers(self._predict_function, options)
        if self._context is not None:
            from .async_workers import AsyncWorkers  # it imports asyncio

            context = self._context.copy()  # a fork may have come while the parent was in it
            return AsyncWorkers(self._predict_function, options, self._worker_num, context)
        return Workers(self._predict_function, options, self._worker_num)

    def _explanation(self, text: str, name: str, stats: StreamerStats) -> str:
        if self.is_native:
            from .native import advice

            of_threads = advice(stats.workers, stats.intra_op_threads)
        else:
            remedy = remedy_of(self._predict_function)
            of_threads = complaint(stats.workers, stats.intra_op_threads, remedy)
        if of_threads is not None:
            text = f"{text}\n\n{of_threads}"
        return super()._explanation(text, name, stats)

    def _name(self) -> str:
        return f"{type(self).__name__}({name_of(self._predict_function)})"


def _concurrent_batches(model: Any, worker_num: int, given: int | None) -> int:
    """Return the number of threads of an async model."""
    if worker_num != 1:
        raise wrong_option(
            f"worker_num={worker_num!r}: {name_of(model)} is async, so use max_concurrent_batches"
        )
    return 1 if given is None else count("max_concurrent_batches", given)
