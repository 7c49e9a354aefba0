"""run_redis_workers_forever: the function of service_streamer 0.1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._base.option_names import REQUIRED, known_options
from .._base.types import FilePath, StartMethod
from .._models.model import AnyModel
from .worker import RedisWorker


@known_options
def run_redis_workers_forever(
    model_class: AnyModel,
    batch_size: int = REQUIRED,
    max_latency: float = 0.1,
    worker_num: int = 1,
    cuda_devices: Sequence[int | str] | None = None,
    redis_broker: str = "localhost:6379",
    prefix: str = "",
    mp_start_method: StartMethod = "spawn",
    model_init_args: Sequence[Any] | None = None,
    model_init_kwargs: Mapping[str, Any] | None = None,
    *,
    options: FilePath | None = None,
    **others: Any,
) -> None:
    """Create a `RedisWorker` and call its `run_forever`.

    The arguments and errors are those of `RedisWorker`, except that ``mp_start_method`` defaults to
    "spawn". To stop the worker from another thread, use `RedisWorker` itself.

    Example:
        >>> def main():  # of a script; SIGTERM or Ctrl-C ends it
        ...     run_redis_workers_forever(
        ...         Classifier, 64, worker_num=2, cuda_devices=(0, 1), redis_broker="redis://broker:6379"
        ...     )
    """
    RedisWorker(
        model_class,
        batch_size,
        max_latency,
        redis_broker,
        prefix,
        model_init_args,
        model_init_kwargs,
        worker_num=worker_num,
        cuda_devices=cuda_devices,
        mp_start_method=mp_start_method,
        **others,
    ).run_forever()
