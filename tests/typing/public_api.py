"""The public API as a typed application uses it. Read by mypy (`make lint`), never run.

Each `type: ignore` claims that mypy refuses the line: an unused one is an error under --strict.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator, Mapping
from pathlib import Path

from torch import Tensor
from torch.export import ExportedProgram
from torch.nn import Module

from service_streamer import (
    BrokerError,
    Cache,
    ConsumerStats,
    Future,
    ManagedModel,
    OutputSizeMismatch,
    Pipeline,
    QueueFull,
    RecentStats,
    RedisStreamer,
    RedisWorker,
    RequestTimeout,
    SerializationError,
    Stage,
    Streamer,
    StreamerClosed,
    StreamerError,
    StreamerStats,
    StreamStats,
    ThreadedStreamer,
    TimeSummary,
    WorkerInitError,
    WorkerLost,
    WorkerStats,
    run_redis_workers_forever,
)
from service_streamer._streamers.streamer import BaseStreamer
from service_streamer.hub import ModelSpec
from service_streamer.managed_model import ManagedModel as OldManagedModel
from service_streamer.onnx import OnnxModel
from service_streamer.service_streamer import RedisStreamer as OldRedisStreamer
from service_streamer.service_streamer import Streamer as OldStreamer
from service_streamer.service_streamer import ThreadedStreamer as OldThreadedStreamer
from service_streamer.torch import BatchedModel, Signature, compile, read_sidecar


def lengths(batch: list[str]) -> list[int]:
    return [len(text) for text in batch]


def as_in_the_original() -> None:
    streamer = ThreadedStreamer(lengths, 64, 0.1, 20)
    outputs: list[int] = streamer.predict(["a", "bc"])
    future: Future = streamer.submit(["a"])
    same: list[int] = future.result()
    within: list[int] = future.result(timeout=1)
    done: bool = future.done()
    streamer._wait_for_worker_ready()
    streamer.destroy_workers()
    print(outputs, same, within, done)


def every_option() -> ThreadedStreamer:
    return ThreadedStreamer(
        predict_function=lengths,
        batch_size=64,
        max_latency=0.1,
        worker_timeout=None,
        policy="adaptive",
        max_queue=1024,
        overflow="reject",
        output="batch",
        copy_outputs=False,
        isolate_errors=False,
        isolation_budget=4.5,
        coalesce="copy",
        cache=Cache(max_items=2000, max_bytes="1GB", ttl=60),
        worker_num=2,
    )


async def pipelines(streamer: RedisStreamer) -> None:
    stages = [Stage(lengths, 8, workers=2, name="count"), Stage(lengths, processes=True, retries=2)]
    with Pipeline(*stages, lengths, streamer, max_in_flight=8, overflow="reject") as pipeline:
        outputs: list[int] = pipeline.predict(["a"], timeout=1, priority=2)
        future: Future = pipeline.submit(["a"])
        awaited: list[int] = await pipeline.apredict(["a"])
        lazy: Iterator[int] = pipeline.map(["a"])
        each: Mapping[str, BaseStreamer] = pipeline.stages
        of_stages: Mapping[str, StreamerStats] = pipeline.stats().stages
        print(outputs, future, awaited, lazy, each, of_stages, pipeline.explain())


def life_cycle() -> None:
    with ThreadedStreamer(lengths, batch_size=8) as streamer:
        streamer.wait_ready(timeout=5)
        streamer.configure(policy="greedy", batch_size=16, max_latency=0)
    streamer.close()
    streamer.close(drain=False, timeout=1.5)


def deadline_and_priority(streamer: ThreadedStreamer) -> None:
    try:
        streamer.predict(("a", "b"), timeout=0.5, priority=1, tenant="acme")
    except QueueFull as full:
        later: float = full.retry_after
        print(later)
    except OutputSizeMismatch as mismatch:
        expected: int = mismatch.expected
        received: int | None = mismatch.received
        print(expected, received)
    except (RequestTimeout, TimeoutError, StreamerClosed, SerializationError) as error:
        print(error)
    except (WorkerLost, WorkerInitError, StreamerError) as error:
        print(error)


def futures(streamer: ThreadedStreamer) -> None:
    pending: list[Future] = [streamer.submit([text], timeout=2) for text in "abc"]
    first, *others = pending
    first.add_done_callback(lambda done: print(done.exception(timeout=0)))
    for future in concurrent.futures.as_completed(others):
        print(future.result())
    cancelled: bool = first.cancel() or first.cancelled() or first.running()
    print(cancelled)


def numbers(streamer: ThreadedStreamer) -> None:
    stats: StreamerStats = streamer.stats()
    queue_time: TimeSummary = stats.queue_time
    seconds: float = queue_time.p99
    total: float = (queue_time + TimeSummary.empty()).total
    buckets: Mapping[float, int] = queue_time.buckets
    recent: RecentStats = stats.last_minute
    rate: float = recent.completed / recent.seconds
    engine: str = stats.engine_id
    sizes: Mapping[int, int] = stats.batch_sizes
    text: str = streamer.explain()
    print(seconds, total, buckets, rate, engine, sizes, text)


class Lengths(ManagedModel):
    def init_model(self, prefix: str, *, upper: bool = False) -> None:
        self.model = str.upper if upper else str.lower

    def predict(self, batch: list[str]) -> list[int]:
        return lengths([self.model(text) for text in batch])


def managed_model() -> None:
    model = Lengths(gpu_id=0)
    model.init_model("a", upper=True)
    outputs: list[int] = model.predict(["a"])
    Lengths.set_gpu_id("0,1")
    print(outputs, model.gpu_id)


def worker_processes_as_in_the_original() -> None:
    streamer = Streamer(
        Lengths, 64, 0.1, 4, (0, 1, 2, 3), ["a"], {"upper": True}, True, "spawn", 20
    )
    streamer._wait_for_worker_ready(timeout=60)
    outputs: list[int] = streamer.predict(["a"])
    streamer.destroy_workers()
    print(outputs)


def every_option_of_worker_processes() -> Streamer:
    return Streamer(
        predict_function_or_model=lengths,
        batch_size=64,
        worker_num=2,
        cuda_devices=["GPU-8932f937", 1, "MIG-1"],
        model_init_args=None,
        model_init_kwargs=None,
        wait_for_worker_ready=False,
        mp_start_method="forkserver",
        worker_timeout=None,
        policy="greedy",
        max_queue=1024,
        overflow="block",
        output="items",
        isolate_errors=True,
        isolation_budget=0,
        retries=0,
        worker_hang_timeout=30,
        warmup=["a"],
        address="@lengths",
    )


def workers_at_run_time(streamer: Streamer) -> None:
    streamer.resize(3)
    streamer.restart()
    streamer.restart(Lengths, ["a"], {"upper": True}, timeout=60)
    workers: tuple[WorkerStats, ...] = streamer.stats().worker_processes
    where: list[str | None] = [worker.device for worker in workers]
    print(where, workers[0].transport_time.mean)


def old_modules(
    model: OldManagedModel, threaded: OldThreadedStreamer, processes: OldStreamer
) -> None:
    same_model: ManagedModel = model
    same_threaded: ThreadedStreamer = threaded
    same_processes: Streamer = processes
    print(same_model, same_threaded, same_processes)


def refused(streamer: ThreadedStreamer) -> None:
    ThreadedStreamer(lengths)  # type: ignore[call-overload]
    ThreadedStreamer(lengths, "64")  # type: ignore[call-overload]
    ThreadedStreamer(lengths, 64, 0.1, 20, "greedy")  # type: ignore[call-overload]
    streamer.predict(["a"], 1.0)  # type: ignore[call-arg]
    streamer.predict(3)  # type: ignore[arg-type]
    streamer.submit(["a"], deadline=1)  # type: ignore[call-arg]
    Streamer(lengths, 64, address=5005)  # type: ignore[call-overload]
    Streamer(lengths, 64, 0.1, 1, 0)  # type: ignore[call-overload]
    Streamer.connect("@lengths", batch_size=64)  # type: ignore[call-arg]
    ManagedModel(gpu_id=1.5)  # type: ignore[arg-type]


def options_of_processes_and_in_a_file(path: Path | None) -> None:
    named: ThreadedStreamer[str, list[int]] = ThreadedStreamer(lengths, options="tuned.toml")
    ThreadedStreamer(lengths, 8, policy="greedy", options=path)
    Streamer(Lengths, mp_start_method="fork", options=Path("tuned.toml"))
    RedisStreamer(options="tuned.toml")
    RedisWorker(Lengths, prefix="lengths", options="tuned.toml")
    Streamer(Lengths, 8, affinity="auto", numa="auto", threads_per_worker=2)
    Streamer(lengths, 8, affinity=["0-3", [4, 5]])
    RedisWorker(Lengths, 8, affinity="no_smt", numa=(0, 1))
    run_redis_workers_forever(Lengths, options="tuned.toml")
    ModelSpec(lengths, options="tuned.toml")
    Stage(lengths, options="tuned.toml")
    print(named)


def a_client_of_redis_workers() -> StreamStats | None:
    OldRedisStreamer(redis_broker="localhost:6379", prefix="old")
    streamer = RedisStreamer(
        "redis://localhost",
        "models",
        batch_size=64,
        worker_timeout=None,
        max_queue=1024,
        overflow="reject",
        output="batch",
        secret=b"secret",
    )
    RedisStreamer(batch_sizes=8)  # type: ignore[call-arg]
    try:
        outputs: list[int] = streamer.predict(["a"], timeout=1.0, priority=1)
        print(outputs, streamer.explain())
    except BrokerError as error:
        transient: bool = error.transient
        print(transient)
    stream = streamer.stats().stream
    if stream is not None:
        workers: tuple[ConsumerStats, ...] = stream.consumers
        waiting: float | None = stream.oldest_waiting
        print(workers[0].name, workers[0].pending, workers[0].idle, waiting, stream.length)
    return stream


def native_models(encoder: Module, program: ExportedProgram, ids: Tensor) -> None:
    signature: Signature = compile(encoder, ids, "encoder.pt2", max_batch=64)
    compile(program, (ids, ids), Path("encoder.pt2"), max_batch=64, sequence=(2, 512))
    compile(encoder, {"ids": ids}, "encoder.pt", max_batch=64, sequence=512, tolerance=1e-3)
    compile(encoder, ids, "encoder.pt2")  # type: ignore[call-arg]
    compile(encoder, ids, "encoder.pt2", max_batch="64")  # type: ignore[arg-type]
    shapes: list[tuple[int | str | None, ...]] = [spec.shape for spec in signature.inputs]
    print(shapes, read_sidecar("encoder.pt2").dims["batch"])


def onnx_files() -> None:
    model = OnnxModel(
        Path("model.onnx"),
        providers=["CPUExecutionProvider", ("CUDAExecutionProvider", {"device_id": 1})],
        collate="pad",
        pad_value={"ids": 1},
        intra_op_threads=2,
        session_options={"log_severity_level": 3},
        outputs=["pooled"],
    )
    OnnxModel("model.onnx", collate="pack")  # type: ignore[arg-type]
    rows: list[list[float]] = ThreadedStreamer(model, 64).predict([{"ids": [1, 2]}])
    more: list[list[float]] = Streamer(model, 64).predict([{"ids": [1, 2]}])
    print(model([{"ids": [1, 2]}])[0], rows, more, model.inputs[0].shape)


def callables_on_batches(encoder: Module, ids: Tensor) -> None:
    ThreadedStreamer(encoder, 64, collate="pad", device="cuda:0")
    BatchedModel(encoder, collate="pack", trim=True)
    ThreadedStreamer(encoder, 64, collate=True)  # type: ignore[call-overload]
    model = BatchedModel(
        encoder,
        collate="pad",
        pad_value={"ids": 1},
        pad_to=(16, 32),
        mask="mask",
        trim=["tokens"],
        key=len,
        output="numpy",
    )
    rows: list[list[float]] = Streamer(model, 64).predict([ids])
    print(model([ids]), rows)
