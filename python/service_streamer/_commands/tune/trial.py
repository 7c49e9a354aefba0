"""The process of one trial: runs a model with its settings, and puts it under load.

It reads its job and then one load a line from stdin, and answers each with a line on what was its
stdout. Whatever else is printed goes to stderr. It ends when its stdin does, so no trial outlives
the command, however that has ended. Its workers end before it, so the next trial has their memory.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import queue
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from ..._engine import lifecycle
from ..._processes.streamer import Streamer
from ..._streamers.streamer import BaseStreamer
from ..._threads.threaded import ThreadedStreamer
from ..bench.load import MAX_THREADS, Sample, closed_loop, open_loop
from ..bench.results import percentile
from ..bench.targets import BenchTarget, one_line
from ..bench.targets import Settings as TargetSettings
from ..options import CommandError, find
from .search.rates import Point
from .search.space import Settings

_WARM_UP = 0.25  # of the measured time
_REQUESTS_IN_TURN = 5  # of one client: the least time of a load
_REQUESTS = 200  # that an open loop should have, so that its p99 means something
LONGEST = 4  # times the measured time, for that
_LEAST_TIMEOUT = 10.0  # s


@dataclasses.dataclass(frozen=True)
class Job:
    """What all trials of a search have in common."""

    model: str
    """module:attribute"""
    sample: str
    """path of a JSON file with a list of items"""
    slo: float
    """target of the p99, in seconds"""
    seconds: float
    """the length of one load"""
    items_per_request: int = 1
    native: str | None = None
    """path of the compiled model"""
    native_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """the options of its `NativeModel`"""
    model_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """model_init_args, model_init_kwargs, warmup"""
    process_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """cuda_devices, mp_start_method"""
    start_timeout: float = 120.0
    """seconds until the workers are ready"""

    @property
    def timeout(self) -> float:
        """The seconds after which a request fails: one that is just late does not."""
        return max(_LEAST_TIMEOUT, 2 * self.slo)

    def about(self) -> dict[str, Any]:
        """Return what an interrupted search must have in common with one that goes on."""
        fields = dataclasses.asdict(self)
        return {name: value for name, value in fields.items() if name != "start_timeout"}


class ModelNotFoundError(Exception):
    """There is no such model. The message says why."""


def main() -> None:
    """Serve the command until stdin ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()

    def reply(**answer: Any) -> None:
        print(json.dumps(answer), file=replies, flush=True)

    asked = json.loads(lines.get())
    try:
        job, settings = Job(**asked["job"]), Settings(**asked["settings"])
        trial = _Trial(job, settings)
    except Exception as error:
        found = not isinstance(error, ModelNotFoundError)
        return reply(error=one_line(error) if found else str(error), found=found)
    reply(seconds=trial.seconds)
    while True:
        reply(**dataclasses.asdict(trial.measure(**json.loads(lines.get()))))


def _read(lines: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    try:
        lifecycle.close_all()  # the command has ended, or needs the trial no more
    finally:
        os._exit(0)


class _Trial:
    def __init__(self, job: Job, settings: Settings) -> None:
        self._job = job
        with open(job.sample, encoding="utf-8") as file:
            items = json.load(file)
        streamer = self._native(settings, items) if settings.native else self._python(settings)
        try:
            streamer.wait_ready(job.start_timeout)
        except BaseException:
            streamer.close(drain=False, timeout=0)
            raise
        self._target = BenchTarget(
            "", streamer, TargetSettings(items, job.items_per_request, job.timeout)
        )
        self._clients = 2 * settings.batch_size * settings.worker_num // job.items_per_request
        with self._target.session() as call:
            call(job.timeout)  # it may be slower than the next ones
            start = time.perf_counter()
            call(job.timeout)
            latency = time.perf_counter() - start
        self.seconds = max(job.seconds, _REQUESTS_IN_TURN * latency)
        # What is unanswered so long after the end of a load was late, whenever it was due.
        self._grace = max(job.slo, _REQUESTS_IN_TURN * latency)

    def _python(self, settings: Settings) -> BaseStreamer:
        try:
            source = find(self._job.model)
        except CommandError as error:
            raise ModelNotFoundError(str(error)) from None
        except Exception as error:
            raise ModelNotFoundError(f"{self._job.model}: {one_line(error)}") from None
        return Streamer(
            source, **settings.options(), **self._job.model_options, **self._job.process_options
        )

    def _native(self, settings: Settings, items: list[Any]) -> BaseStreamer:
        from ...torch import NativeModel

        model = NativeModel(
            str(self._job.native), **{**self._job.native_options, **settings.native_options()}
        )
        items[:] = [_tensors(item, model) for item in items]
        return ThreadedStreamer(model, **settings.options())

    def measure(self, rate: float | None, seed: int) -> Point:
        """Measure an open loop with a rate in requests/s; None: a closed loop."""
        seconds, grace = self.seconds, self._grace
        if rate is None:
            clients = min(MAX_THREADS, max(16, self._clients))
            sample = closed_loop(self._target, clients, _WARM_UP * seconds, seconds, grace)
            if not sample.latencies and not sample.errors:  # a full batch takes far longer than one
                seconds *= LONGEST
                sample = closed_loop(self._target, clients, 0, seconds, grace)
            return self._point(sample, clients, closed=True)
        seconds = min(max(seconds, _REQUESTS / rate), LONGEST * seconds)
        sample = open_loop(self._target, rate, _WARM_UP * seconds, seconds, grace, seed)
        return self._point(sample, rate)

    def _point(self, sample: Sample, load: float, *, closed: bool = False) -> Point:
        lost = sum(sample.errors.values()) + sample.unfinished
        latencies = sample.latencies + [math.inf] * lost
        in_time = sum(each <= self._job.slo for each in sample.latencies)
        return Point(
            load=load,
            throughput=sample.throughput,
            p99=percentile(latencies, 0.99) if latencies else math.inf,
            in_time=in_time / sample.seconds,
            error=next((kind for kind, _ in sample.errors.most_common(1)), None),
            closed=closed,
        )


def _tensors(item: Any, model: Any) -> Any:
    """Return an item of the sample as a `NativeModel` takes it.

    An item is a list with a value for each input, or an object. If there is one input, it is the
    value itself.
    """
    import torch

    def tensor(value: Any, spec: Any) -> Any:
        return torch.tensor(value, dtype=getattr(torch, spec.dtype))

    structure = model.signature.input_structure
    inputs = [spec for spec in model.signature.inputs if spec.name not in model.generated]
    if structure == "tensor":
        return tensor(item, inputs[0])
    if structure == "dict":
        return {spec.name: tensor(item[spec.name], spec) for spec in inputs}
    values = [item] if len(inputs) == 1 else item
    return tuple(tensor(value, spec) for value, spec in zip(values, inputs, strict=True))
