"""What the first hour on a GPU measures by itself: `python gpu_steps.py NAME`.

Each function prints lines of a report, and raises where a promise is broken. With
SERVICE_STREAMER_SIMULATED_CUDA two GPUs are simulated; what a simulation cannot show is left out.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

SIMULATED = bool(os.environ.get("SERVICE_STREAMER_SIMULATED_CUDA"))
if SIMULATED:
    import simulated_cuda

    simulated_cuda.pytest_configure()

import torch  # noqa: E402

from service_streamer import Streamer, ThreadedStreamer  # noqa: E402
from service_streamer.hub import ModelHub, ModelSpec  # noqa: E402

DEVICE = "cuda:0"
LEFT_OUT = 77
"""the status of a step that cannot run here"""


def leave_out(reason: str) -> None:
    print(f"left out: {reason}")
    sys.exit(LEFT_OUT)


def milliseconds(work: Callable[[], object], times: int = 20) -> float:
    """The median time of a call between two events; between two looks at the clock if simulated."""
    took = []
    for _ in range(times):
        torch.cuda.synchronize()
        if SIMULATED:
            start = time.perf_counter()
            work()
            torch.cuda.synchronize()
            took.append(1000 * (time.perf_counter() - start))
        else:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            work()
            end.record()
            torch.cuda.synchronize()
            took.append(begin.elapsed_time(end))
    return sorted(took)[times // 2]


def overlap() -> None:
    """A copy to the GPU and a computation: one after the other, and on two streams."""
    there = torch.ones((1 << 20) if SIMULATED else (64 << 20), device=DEVICE)
    here = torch.ones(there.shape).pin_memory() if not SIMULATED else torch.ones(there.shape)
    side = torch.cuda.Stream(DEVICE)

    def compute() -> None:
        torch.cuda._sleep(20_000_000)

    def copy() -> None:
        there.copy_(here, non_blocking=True)

    def both() -> None:
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            copy()
        compute()
        main.wait_stream(side)

    alone, copied, together = milliseconds(compute), milliseconds(copy), milliseconds(both)
    print(f"compute {alone:.2f} ms, copy {copied:.2f} ms, together {together:.2f} ms")
    if not SIMULATED and together > 0.9 * (alone + copied):
        raise AssertionError("the copy does not overlap with the computation")


def pinned() -> None:
    """Copies to the GPU from ordinary and from pinned memory."""
    if SIMULATED:
        leave_out("memory of a simulated GPU is not faster when it is pinned")
    for size in (64 << 10, 1 << 20, 64 << 20):
        ordinary = torch.ones(size, dtype=torch.uint8)
        there, fixed = torch.empty_like(ordinary, device=DEVICE), ordinary.pin_memory()
        took = [milliseconds(lambda each=each: there.copy_(each, non_blocking=True))
                for each in (ordinary, fixed)]  # fmt: skip
        rates = [size / 1e6 / each for each in took]
        print(f"{size >> 10} KiB: ordinary {rates[0]:.1f} GB/s, pinned {rates[1]:.1f} GB/s")


def memory() -> None:
    """A model that finds memory for six items: what is learned, with no request that fails."""
    most = 6
    share = (1 << 20) if SIMULATED else torch.cuda.mem_get_info(DEVICE)[0] // (most + 1)

    def model(batch: list[int]) -> list[int]:
        if SIMULATED and len(batch) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        held = torch.empty(len(batch) * share, dtype=torch.uint8, device=DEVICE)
        del held
        torch.cuda.empty_cache()
        return batch

    with ThreadedStreamer(model, 16, worker_timeout=None) as streamer:
        futures = [streamer.submit([number]) for number in range(200)]
        outputs = [future.result(120)[0] for future in futures]
        stats = streamer.stats()
    print(f"{stats.out_of_memory} batches ran out of memory; learned: {dict(stats.memory_limits)}")
    if outputs != list(range(200)) or not stats.out_of_memory or not stats.memory_limits:
        raise AssertionError("the limit was not learned, or an output is wrong")


class Busy:
    """A model of a few products of matrices, in a worker process."""

    def __init__(self) -> None:
        self.matrix = torch.ones(1024, 1024, device=DEVICE)

    def predict(self, batch: list[int]) -> list[int]:
        total = self.matrix
        for _ in range(20):
            total = total @ self.matrix * 1e-3
        torch.cuda.synchronize()
        return batch


def rate(workers: int, seconds: float) -> float:
    """Batches per second of worker processes on one GPU."""
    # A simulated GPU is one of the process that loaded it: CUDA_VISIBLE_DEVICES has no meaning.
    devices = None if SIMULATED else (0,)
    with Streamer(Busy, 1, worker_num=workers, cuda_devices=devices) as streamer:
        streamer.wait_ready()
        end, counts = time.monotonic() + seconds, [0] * 8

        def ask(number: int) -> None:
            while time.monotonic() < end:
                streamer.predict([number])
                counts[number] += 1

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(counts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return sum(counts) / seconds


@contextlib.contextmanager
def mps() -> Iterator[None]:
    """The control daemon of MPS, for what is started meanwhile."""
    control = ["nvidia-cuda-mps-control"]
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(CUDA_MPS_PIPE_DIRECTORY=folder, CUDA_MPS_LOG_DIRECTORY=folder)
        subprocess.run([*control, "-d"], check=True)
        try:
            yield
        finally:
            subprocess.run(control, input="quit\n", text=True, check=False)


def workers() -> None:
    """One and two worker processes on one GPU, with and without MPS."""
    seconds = 0.2 if SIMULATED else 10.0
    print("without MPS: " + ", ".join(f"{n} workers {rate(n, seconds):.0f}/s" for n in (1, 2)))
    if SIMULATED or shutil.which("nvidia-cuda-mps-control") is None:
        print("with MPS: left out, there is no nvidia-cuda-mps-control")
        return
    with mps():
        print("with MPS: " + ", ".join(f"{n} workers {rate(n, seconds):.0f}/s" for n in (1, 2)))


def budget() -> None:
    """Three models of 256 MiB within a budget of 700 MB: two are loaded."""
    if SIMULATED:
        leave_out("a simulated GPU does not say how much of its memory is free")
    torch.cuda.init()

    def factory() -> ThreadedStreamer[int, Any, Any]:
        held = torch.ones(256 << 20, dtype=torch.uint8, device=DEVICE)
        return ThreadedStreamer(lambda batch: [int(held[0]) * each for each in batch], 8)

    models = {name: ModelSpec.factory(factory) for name in "abc"}
    with ModelHub(models, gpu_memory_budget="700MB") as hub:
        for name in "abcab":
            if hub.predict(name, [3]) != [3]:
                raise AssertionError(f"model {name} has a wrong output")
        sizes = {name: model.versions[1] for name, model in hub.status().items()}
    for name, version in sizes.items():
        print(f"{name}: {version.state}, {version.gpu_memory >> 20} MiB")
    if sum(version.state == "ready" for version in sizes.values()) != 2:
        raise AssertionError("the budget has room for two models")


if __name__ == "__main__":
    steps = {each.__name__: each for each in (overlap, pinned, memory, workers, budget)}
    steps[sys.argv[1]]()
