"""What the first hour on a GPU measures by itself: `python gpu_steps.py NAME`.

Each step prints lines of the report, and raises where a promise is broken. With
SERVICE_STREAMER_SIMULATED_CUDA two GPUs are simulated, and the CPU takes the place of one for which
a .pt2 is compiled: the steps run, and their figures mean nothing.
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
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SIMULATED = bool(os.environ.get("SERVICE_STREAMER_SIMULATED_CUDA"))
ON_CPU = SIMULATED and sys.argv[1:] in (["package"], ["figures", "ragged"], ["figures", "pipeline"])
if SIMULATED and not ON_CPU:
    import pytest
    import simulated_cuda

    try:
        simulated_cuda.pytest_configure()
    except pytest.exit.Exception as reason:
        print(f"left out: {reason}")
        sys.exit(77)
sys.path.insert(0, str(ROOT / "benchmarks"))

import torch  # noqa: E402
from cases import cuda  # noqa: E402

from service_streamer import Streamer, ThreadedStreamer  # noqa: E402
from service_streamer.hub import ModelHub, ModelSpec  # noqa: E402
from service_streamer.torch import NativeModel, compile  # noqa: E402

DEVICE = cuda.DEVICE
if ON_CPU:
    cuda.DEVICE, cuda.MODELS = "cpu", ROOT / "build/gpu-rehearsal/models"
    torch.cuda.synchronize = lambda: None


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


def package() -> None:
    """The encoder of the benchmarks as a .pt2, compared with the module."""
    shutil.rmtree(cuda.MODELS, ignore_errors=True)
    start = time.monotonic()
    path = cuda.package("encoder")
    print(f"compiled in {time.monotonic() - start:.1f} s: {path.stat().st_size >> 20} MiB")
    module = cuda.Encoder().eval().to(cuda.DEVICE)
    items = [cuda.ITEMS["encoder"]() for _ in range(64)]
    with torch.inference_mode():
        wanted = module(torch.stack(items).to(cuda.DEVICE)).cpu()
    model = NativeModel(path, device=cuda.DEVICE, warmup=(1, 64))
    with ThreadedStreamer(model, 64, worker_timeout=None) as streamer:
        futures = [streamer.submit([item]) for item in items]
        on_host = torch.stack([future.result(120)[0] for future in futures])
        on_device = streamer.predict([item.to(cuda.DEVICE) for item in items])
    print("largest difference:", (on_host - wanted).abs().max().item())
    torch.testing.assert_close(on_host, wanted, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(torch.stack(on_device).cpu(), wanted, rtol=1e-3, atol=1e-3)
    if {output.device for output in on_device} != {torch.device(cuda.DEVICE)}:
        raise AssertionError("outputs of items on the device are elsewhere")


def overlap() -> None:
    """A copy beside a computation by torch, then batches of ours that are copied and computed."""
    there = torch.ones(1 << (20 if SIMULATED else 26), device=DEVICE)
    here, side = torch.ones(there.shape).pin_memory(), torch.cuda.Stream(DEVICE)

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
    print(f"torch: compute {alone:.2f} ms, copy {copied:.2f} ms, both {together:.2f} ms")
    count, name = (2, "images.pt") if SIMULATED else (64, "images.pt2")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        module, example = cuda.Images().eval().to(DEVICE), torch.zeros(2, 3, 224, 224)
        compile(module, example.to(DEVICE), path, max_batch=64, device=DEVICE)
        model = NativeModel(path, device=DEVICE, warmup=(count,))
    items = [torch.rand(3, 224, 224) for _ in range(count)]
    one = cuda.milliseconds(lambda: model(items), 0.2 if SIMULATED else 2.0)
    with ThreadedStreamer(model, count, worker_timeout=None) as streamer:
        streamer.predict(items)
        start, batches = time.perf_counter(), 10 if SIMULATED else 200
        for future in [streamer.submit(items) for _ in range(batches)]:
            future.result(120)
        each = 1000 * (time.perf_counter() - start) / batches
    print(f"ours: a batch alone {one:.2f} ms, each of {batches} in a row {each:.2f} ms")
    if not SIMULATED and (together > 0.9 * (alone + copied) or each > one):
        raise AssertionError("a copy does not overlap with a computation")


def pinned() -> None:
    """Copies to the GPU from ordinary and from pinned memory."""
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
    free, _ = torch.cuda.mem_get_info(DEVICE)
    share = 1 << 20 if SIMULATED else int(free / (most + 0.5))

    def model(batch: list[int]) -> list[int]:
        if SIMULATED and len(batch) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        torch.empty(len(batch) * share, dtype=torch.uint8, device=DEVICE)
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
        for _ in range(1 if SIMULATED else 20):
            total = total @ self.matrix * 1e-3
        torch.cuda.synchronize()
        return batch


def rate(workers: int, seconds: float) -> float:
    """Batches per second of worker processes on one GPU."""
    device = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    counts = [0] * 8
    with Streamer(Busy, 1, max_latency=0, worker_num=workers, cuda_devices=(device,)) as streamer:
        streamer.wait_ready(100)
        end = time.monotonic() + seconds

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


def workers() -> None:
    """One and two worker processes on one GPU."""
    for number in (1, 2):
        print(f"{number} workers: {rate(number, 0.5 if SIMULATED else 10):.0f} batches/s")


def mps() -> None:
    """The same with the control daemon of MPS, which need not be allowed."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(CUDA_MPS_PIPE_DIRECTORY=folder, CUDA_MPS_LOG_DIRECTORY=folder)
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True)
        try:
            workers()
        finally:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True)
            for log in Path(folder).glob("*.log"):
                print(log.name, log.read_text()[-2000:], sep=":\n")


def budget() -> None:
    """Three models of 256 MiB within a budget of 700 MB: two are loaded."""
    torch.ones(1 << 20, dtype=torch.uint8, device=DEVICE).cpu()  # CUDA's own memory

    def factory() -> ThreadedStreamer:
        held = torch.ones(256 << 20, dtype=torch.uint8, device=DEVICE)
        return ThreadedStreamer(lambda batch: [int(held[0]) * each for each in batch], 8)

    models = {name: ModelSpec.factory(factory) for name in "abc"}
    with ModelHub(models, gpu_memory_budget="700MB") as hub:
        for name in "abcab":
            if hub.predict(name, [3]) != [3]:
                raise AssertionError(f"model {name} has a wrong output")
        versions = {name: model.versions[1] for name, model in hub.status().items()}
    for name, version in versions.items():
        print(f"{name}: {version.state}, {version.loads} loads, {version.gpu_memory} bytes")
    if [version.state for version in versions.values()].count("ready") != 2:
        raise AssertionError("the budget has room for two models")


def figures(case: str) -> None:
    """A case of the benchmarks."""
    cuda.CASES[case](*((2, 0.2) if SIMULATED else (256, 3.0)))


if __name__ == "__main__":
    steps = (package, overlap, pinned, memory, workers, mps, budget, figures)
    {each.__name__: each for each in steps}[sys.argv[1]](*sys.argv[2:])
