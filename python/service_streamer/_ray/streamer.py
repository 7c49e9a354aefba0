"""RayStreamer: runs the model in actors of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

from .._base import options as _options
from .._base.errors import StreamerError
from .._base.grouping import KeyFunction, WeightFunction, client_grouping
from .._base.messages import see
from .._base.option_names import REQUIRED, known_options
from .._base.options import Options, options_of
from .._base.system import needs_linux
from .._base.types import (
    CacheBounds,
    Coalesce,
    EngineOptions,
    FilePath,
    Item,
    Output,
    Overflow,
    Piece,
    Predict,
    Predicting,
    R,
    RayOptions,
    Replicas,
    Result,
    T,
    V,
)
from .._engine.backend import Backend
from .._models.model import AnyModel, check_model, makes_steps, name_of, warn_of_single_items
from .._streamers.streamer import BaseStreamer
from .._waiting import greenlets
from ..managed_model import ManagedModel
from .settings import RaySettings

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from .._statistics.stats import StreamerStats
    from .client.backend import RayClient

MAX_QUEUE = 65_536  # items that are sent and not answered


class RayStreamer(BaseStreamer[Item, Result, Piece]):
    """Collects the requests of many callers into batches for a model in actors of a Ray cluster.

    It has the methods of `ThreadedStreamer`, except `stream`. Ray places the replicas
    of the model on nodes with the resources that they need. One more actor, the owner, forms the
    batches; replicas take them when they are idle. If no Ray is running, the constructor starts one
    on this machine, as ``ray.init()`` does. Every node must have this package.

    Items and outputs are pickled. Arrays and CPU tensors of 32 KB and more travel through Ray's
    object store. They arrive without a copy, so they are read-only. An output keeps those of its
    batch in the store: copy it to keep it for long. An item is pickled after `submit` has returned:
    do not change it before its output is there.

    A replica that dies, also with its node, is replaced. Its batch runs again on another replica,
    ``retries`` times; then its requests raise `WorkerLost`. If the owner dies, Ray starts it again,
    and clients send again what was not answered, except with ``retries=0``. If no replica can load
    the model, requests raise `WorkerInitError`; if no node has the resources, `ClusterError`.

    The replicas end with this streamer, and with its process. A streamer with a ``name`` can be
    used by other processes and jobs of the cluster, by `connect`. A forked child cannot use it.

    Args:
        predict_function_or_model: a function as for `ThreadedStreamer`, or a `ManagedModel` class.
            It is pickled by ``ray.cloudpickle``: what is in the main module travels with it, other
            modules must be importable on the nodes. A `StepModel` is not accepted.
        batch_size: most items per batch.
        max_latency, worker_timeout: as for `ThreadedStreamer`, and so are the options from
            ``policy`` to ``isolation_budget``. ``key`` and ``weight`` run in the process of the
            caller.
        replicas: the number of replicas, or the least and the most, such as (1, 8). Between them
            the number follows the time that requests wait for a replica.
        target_queue_time: the mean seconds in the queue above which replicas are added, if
            ``replicas`` is a range. One is removed after 30 seconds in which one less would do.
        num_cpus, num_gpus, resources: what Ray reserves for each replica. A replica sees only its
            own GPUs.
        runtime_env: of the actors, as for Ray: packages, files, variables.
        name: under which other processes and jobs `connect`. None: no others do.
        ray_address: of the cluster: ``host:port``, "auto" for one on this machine, or "local" to
            start one, unless this process is connected. None: the cluster to which this process
            is connected, or that of ``ray.init()``.
        placement_timeout: seconds after which requests raise `ClusterError` if no node has the
            resources of a replica. With node autoscaling, the longest start of a node.
        model_init_args, model_init_kwargs: passed to ``init_model``.
        warmup: items that each replica predicts before its first request.
        retries: how often a batch runs again after its replica died.
        worker_hang_timeout: most seconds that a replica may take for one batch; then it is killed
            and replaced. None: no limit.
        options: a TOML file with more of these options, as for `ThreadedStreamer`.

    Raises:
        ImportError: the extra ``ray`` is not installed.
        ClusterError: there is no Ray cluster at the address.
        StreamerError: gevent has patched this process.
        TypeError, ValueError: a setting is invalid, or the name is in use. The message names it.
        SerializationError: the model cannot be pickled.

    Example:
        >>> def upper(texts):
        ...     return [text.upper() for text in texts]
        >>> with RayStreamer(upper, 64, replicas=(1, 8)) as streamer:
        ...     streamer.predict(["one item", "another"])
        ['ONE ITEM', 'ANOTHER']
    """

    _needs_ready_worker = False
    _client: RayClient

    @overload
    def __init__(
        self: RayStreamer[T, list[R], Any],
        predict_function_or_model: Predict[T, R],
        batch_size: int,
        max_latency: float = ...,
        worker_timeout: float | None = ...,
        *,
        output: Literal["items"] = ...,
        **options: Unpack[RayOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: RayStreamer[T, list[R], Any],
        predict_function_or_model: type[ManagedModel[T, R]],
        batch_size: int,
        max_latency: float = ...,
        worker_timeout: float | None = ...,
        *,
        output: Literal["items"] = ...,
        **options: Unpack[RayOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: RayStreamer[T, V, Any],
        predict_function_or_model: Callable[[list[T]], V] | type[Predicting[T, V]],
        batch_size: int,
        max_latency: float = ...,
        worker_timeout: float | None = ...,
        *,
        output: Literal["batch"],
        **options: Unpack[RayOptions],
    ) -> None: ...
    @overload  # with a file, which may set `output`
    def __init__(
        self: RayStreamer[Any, Any, Any],
        predict_function_or_model: AnyModel,
        batch_size: int = ...,
        max_latency: float = ...,
        worker_timeout: float | None = ...,
        *,
        options: FilePath | None,
        output: Output = ...,
        **others: Unpack[RayOptions],
    ) -> None: ...
    @known_options
    def __init__(
        self,
        predict_function_or_model: AnyModel,
        batch_size: int = REQUIRED,
        max_latency: float = 0.1,
        worker_timeout: float | None = 20,
        *,
        replicas: Replicas = 1,
        target_queue_time: float = 0.05,
        num_cpus: float = 1,
        num_gpus: float = 0,
        resources: Mapping[str, float] | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        name: str | None = None,
        ray_address: str | None = None,
        placement_timeout: float = 5,
        model_init_args: Sequence[Any] | None = None,
        model_init_kwargs: Mapping[str, Any] | None = None,
        warmup: Sequence[Any] | None = None,
        retries: int = 1,
        worker_hang_timeout: float | None = None,
        output: Output = "items",
        options: FilePath | None = None,
        **engine: Unpack[EngineOptions],
    ) -> None:
        needs_linux(type(self).__name__)
        of_engine = options_of(
            batch_size=batch_size,
            max_latency=max_latency,
            worker_timeout=worker_timeout,
            output=output,
            **engine,
        )
        _options.warn_of_long_latency(of_engine.max_latency)
        settings = RaySettings(
            replicas=replicas,
            target_queue_time=target_queue_time,
            num_cpus=num_cpus,
            num_gpus=num_gpus,
            resources=resources,
            runtime_env=runtime_env,
            name=name,
            placement_timeout=placement_timeout,
            retries=retries,
            hang_timeout=worker_hang_timeout,
        )
        if makes_steps(predict_function_or_model):
            what = name_of(predict_function_or_model)
            raise TypeError(f"a RayStreamer runs no StepModel such as {what}: use a Streamer")
        model = check_model(predict_function_or_model, model_init_args, model_init_kwargs, warmup)
        warn_of_single_items(model.source, of_engine.batch_size, settings.most)
        from . import cluster, starting  # Ray is an extra

        cluster.connect(ray_address)
        shown = f"{type(self).__name__}({model.name})"
        if of_engine.overflow == "block" and of_engine.max_queue is not None:
            window = of_engine.max_queue + of_engine.batch_size * settings.most
        else:  # the owner refuses what is too much
            window = MAX_QUEUE
        self._open(of_engine, starting.start(model, of_engine, settings), shown, True, window)

    @classmethod
    @known_options
    def connect(
        cls,
        name: str,
        *,
        ray_address: str | None = None,
        worker_timeout: float | None = 20,
        max_queue: int | None = None,
        overflow: Overflow = "block",
        output: Output = "items",
        key: KeyFunction | str | None = None,
        weight: WeightFunction | str | None = None,
        bucket: Sequence[float] | None = None,
        coalesce: Coalesce = False,
        cache: CacheBounds = None,
    ) -> Self:
        """Return a client of the RayStreamer with that name in the cluster.

        The client has all methods except `resize`. `close` closes only the client. When the
        streamer has ended, requests raise `StreamerClosed`.

        Args:
            name: of the RayStreamer.
            ray_address: of the cluster, as for the constructor.
            worker_timeout: seconds after which `predict` and `apredict` raise `RequestTimeout`.
                None: no limit.
            max_queue: most requests of this process that are sent and not answered, and most that
                wait here while there are as many. None: 65,536.
            overflow: while that many wait here, "block" makes the caller wait for room, and
                "reject" raises `QueueFull`.
            output, key, weight, bucket: the same as in the RayStreamer.
            coalesce, cache: as for `ThreadedStreamer`, for the items of this process.

        Raises:
            ClusterError: there is no Ray cluster at the address, or no RayStreamer with the name.
            TypeError, ValueError: an argument is invalid. The message names it and its value.
        """
        options = Options(
            batch_size=64,
            worker_timeout=worker_timeout,
            max_queue=max_queue,
            overflow=overflow,
            output=output,
            grouping=client_grouping(key, weight, bucket),
            coalesce=coalesce,
            cache=cache,
        )
        from . import cluster, starting  # Ray is an extra

        cluster.connect(ray_address)
        self = cls.__new__(cls)
        shown, window = f"{cls.__name__}({name!r})", options.max_queue or MAX_QUEUE
        self._open(options, starting.find(name), shown, False, window)
        return self

    def resize(self, replicas: Replicas) -> None:
        """Change the number of replicas, or its range. Does not wait.

        Surplus replicas finish their batches and end.

        Raises:
            ValueError: `replicas` is not a positive int or a pair of them.
            RuntimeError: this is a client.
            StreamerClosed: the streamer is closed.
        """
        limits = RaySettings(replicas=replicas).limits
        self._check_open()
        if not self._client.owns:
            raise RuntimeError("resize() works only in the process that created the RayStreamer")
        greenlets.call(self._client.resize, limits)

    def stream(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise NotImplementedError: the outputs of a RayStreamer arrive as a whole."""
        raise _no_streams()

    def astream(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise NotImplementedError, as `stream` does."""
        raise _no_streams()

    # -------------------------------------------------------------------- private

    def _open(self, options: Options, owner: Any, shown: str, owns: bool, window: int) -> None:
        from .client.backend import RayClient  # Ray is an extra
        from .client.sent import Submissions

        self._shown = shown
        self._client = RayClient(options, owner, shown, owns=owns, window=window)
        super().__init__(options, self._client)
        self._send_to(Submissions(self._client.engine, options, self._client.cancel))

    def _backend_in_child(self) -> Backend:
        raise StreamerError(
            see(
                f"{self._shown} cannot be used in a forked child, as Ray cannot: create or "
                "connect it after the fork",
                "a-raystreamer-in-a-forked-child",
            )
        )

    def _has_ready_worker(self, stats: StreamerStats) -> bool:
        return super()._has_ready_worker(stats) or bool(self._client.replicas())

    def _explanation(self, text: str, name: str, stats: StreamerStats) -> str:
        obstacle = self._client.obstacle
        return super()._explanation(f"{text}\n\n{obstacle}" if obstacle else text, name, stats)

    def _name(self) -> str:
        return self._shown


def _no_streams() -> NotImplementedError:
    return NotImplementedError(
        "a RayStreamer has no streams, its outputs arrive as a whole: use a Streamer"
    )
