"""What the first hour on a GPU measures by itself: `python gpu_steps.py NAME`.

Each step prints its part of the report, and fails where a promise is broken. With
SERVICE_STREAMER_SIMULATED_CUDA two GPUs are simulated, and a .pt2 is compiled for the CPU. The
figures then mean nothing.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SIMULATED = bool(os.environ.get("SERVICE_STREAMER_SIMULATED_CUDA"))
ON_CPU = SIMULATED and sys.argv[1:] in (["package"], ["figures", "ragged"], ["figures", "pipeline"])
if SIMULATED and not ON_CPU:
    import simulated_cuda

    simulated_cuda.pytest_configure()
sys.path.insert(0, str(ROOT / "benchmarks"))

import torch  # noqa: E402
from cases import cuda  # noqa: E402

from service_streamer import ManagedModel, Streamer, ThreadedStreamer  # noqa: E402
from service_streamer.hub import ModelHub, ModelSpec  # noqa: E402
from service_streamer.torch import NativeModel, compile  # noqa: E402

DEVICE = cuda.DEVICE
if SIMULATED:
    cuda.MODELS = ROOT / "build/gpu-rehearsal/models"
if ON_CPU:
    cuda.DEVICE, cuda.LENGTH = "cpu", 8
    torch.cuda.synchronize = lambda: None


class Products(torch.nn.Module):
    """Products of matrices with themselves: no weights, which a simulated GPU cannot save."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = (x @ x) * 0.01
        return x


def milliseconds(work: Callable[[], object]) -> float:
    """The median time of a call, between two events."""
    if SIMULATED:
        return cuda.milliseconds(work, 0.1)
    took = []
    for _ in range(20):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        took.append(begin.elapsed_time(end))
    return sorted(took)[10]


def package() -> None:
    """The encoder of the benchmarks as a .pt2, compared with the module."""
    shutil.rmtree(cuda.MODELS, ignore_errors=True)
    start = time.monotonic()
    path = cuda.package("encoder")
    print(f"compiled in {time.monotonic() - start:.1f} s: {path.stat().st_size >> 20} MiB")
    items = [cuda.ITEMS["encoder"]() for _ in range(64)]
    there = torch.stack(items).to(cuda.DEVICE)
    with torch.inference_mode():
        wanted = cuda.Encoder().eval().to(cuda.DEVICE)(there)
    model = NativeModel(path, device=cuda.DEVICE, warmup=(1, 64))
    with ThreadedStreamer(model, 64, worker_timeout=None) as streamer:
        futures = [streamer.submit([item]) for item in items]
        of_host = torch.stack([future.result(120)[0] for future in futures])
        of_device = torch.stack(streamer.predict(list(there)))
    print("largest difference:", (of_device - wanted).abs().max().item())
    torch.testing.assert_close(of_host, wanted.cpu(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(of_device, wanted, rtol=1e-3, atol=1e-3)  # and is on the device


def overlap() -> None:
    """A copy beside a computation by torch, then batches of ours that are copied and computed."""
    here = torch.ones(1 << (20 if SIMULATED else 26), pin_memory=True)
    there, side = here.to(DEVICE), torch.cuda.Stream(DEVICE)

    def both() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            there.copy_(here, non_blocking=True)
        torch.cuda._sleep(20_000_000)
        torch.cuda.current_stream().wait_stream(side)

    computed = milliseconds(lambda: torch.cuda._sleep(20_000_000))
    copied = milliseconds(lambda: there.copy_(here, non_blocking=True))
    together = milliseconds(both)
    print(f"torch: compute {computed:.2f} ms, copy {copied:.2f} ms, both {together:.2f} ms")

    count, batches, file = (2, 5, "products.pt") if SIMULATED else (64, 200, "products.pt2")
    items = [torch.rand(3, 224, 224) for _ in range(count)]
    cuda.MODELS.mkdir(parents=True, exist_ok=True)
    example, path = torch.stack(items[:2]).to(DEVICE), cuda.MODELS / file
    compile(Products().eval(), example, path, max_batch=64, device=DEVICE)
    model = NativeModel(path, device=DEVICE, warmup=(count,))
    alone = cuda.milliseconds(lambda: model(items), 1.0)
    with ThreadedStreamer(model, count, worker_timeout=None) as streamer:
        streamer.predict(items)
        start = time.perf_counter()
        for future in [streamer.submit(items) for _ in range(batches)]:
            future.result(120)
        each = 1000 * (time.perf_counter() - start) / batches
    print(f"ours: a batch alone {alone:.2f} ms, one of {batches} in a row {each:.2f} ms")
    assert SIMULATED or (together < 0.9 * (computed + copied) and each < alone), "no overlap"


def pinned() -> None:
    """Copies to the GPU from ordinary and from pinned memory."""
    for size in (64 << 10, 1 << 20, 64 << 20):
        for kind in (False, True):
            here = torch.ones(size, dtype=torch.uint8, pin_memory=kind)
            there = torch.empty_like(here, device=DEVICE, pin_memory=False)
            took = milliseconds(lambda to=there, of=here: to.copy_(of, non_blocking=True))
            print(f"{size >> 10} KiB, pinned {kind}: {size / 1e6 / took:.1f} GB/s")


def memory() -> None:
    """A model that finds memory for six items: what is learned, with no request that fails."""
    most = 6
    share = 1 << 20 if SIMULATED else int(torch.cuda.mem_get_info(0)[0] / (most + 0.5))

    def model(batch: list[int]) -> list[int]:
        if SIMULATED and len(batch) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        torch.empty(len(batch) * share, dtype=torch.uint8, device=DEVICE)
        torch.cuda.empty_cache()
        return batch

    with ThreadedStreamer(model, 16, worker_timeout=None) as streamer:
        futures = [streamer.submit([number]) for number in range(200)]
        assert [future.result(120)[0] for future in futures] == list(range(200))
        stats = streamer.stats()
    print(f"{stats.out_of_memory} batches ran out of memory; learned: {dict(stats.memory_limits)}")
    assert stats.memory_limits, "no limit was learned"


def budget() -> None:
    """Three models of 256 MiB within a budget of 700 MB: two are loaded."""
    torch.ones(1 << 20, dtype=torch.uint8, device=DEVICE).cpu()  # CUDA's own memory

    def factory() -> ThreadedStreamer:
        held = torch.ones(256 << 20, dtype=torch.uint8, device=DEVICE)
        return ThreadedStreamer(lambda batch: [int(held[0]) * each for each in batch], 8)

    models = {name: ModelSpec.factory(factory) for name in "abc"}
    with ModelHub(models, gpu_memory_budget="700MB") as hub:
        for name in "abcab":
            assert hub.predict(name, [3]) == [3]
        versions = {name: model.versions[1] for name, model in hub.status().items()}
    for name, version in versions.items():
        print(f"{name}: {version.state}, {version.loads} loads, {version.gpu_memory} bytes")
    assert sum(version.state == "ready" for version in versions.values()) == 2


class Busy(ManagedModel):
    """Products of matrices in a worker process."""

    def init_model(self) -> None:
        self.model = Products()
        self.matrix = torch.ones(8, *((64, 64) if SIMULATED else (1024, 1024)), device=DEVICE)

    def predict(self, batch: list[int]) -> list[int]:
        self.model(self.matrix)
        torch.cuda.synchronize()
        return batch


def workers() -> None:
    """One and two worker processes on one GPU."""
    device = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    for number in (1, 2):
        with Streamer(Busy, 1, worker_num=number, cuda_devices=(device,)) as streamer:
            streamer.wait_ready(100)
            start, batches = time.perf_counter(), 40 if SIMULATED else 4000
            for future in [streamer.submit([item]) for item in range(batches)]:
                future.result(120)
            print(f"{number} workers: {batches / (time.perf_counter() - start):.0f} batches/s")


def figures(case: str) -> None:
    """A case of the benchmarks."""
    cuda.CASES[case](*((2, 2.0) if SIMULATED else (256, 3.0)))


if __name__ == "__main__":
    own = (package, overlap, pinned, memory, budget, workers, figures)
    {each.__name__: each for each in own}[sys.argv[1]](*sys.argv[2:])
