"""Native models and kernels on a GPU, by hand: no figure has been measured yet.

Needs a GPU, and the module _torch built where nvcc is (make test-cuda). Prints a table; each line
has what it is compared with beside it. What gains less than 1.2 times had better be removed.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cases import common

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "build" / "torch"))

import torch  # noqa: E402

import service_streamer.torch as native  # noqa: E402
from service_streamer import StreamerClosed, ThreadedStreamer  # noqa: E402

MODELS = ROOT / "build" / "bench-models-cuda"
DEVICE = "cuda:0"
WIDTH, LENGTH = 384, 128


class Encoder(torch.nn.Module):
    """6 layers of width 384: as large as the common models of sentence embeddings."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(WIDTH, 12, 4 * WIDTH, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.words = torch.nn.Embedding(30000, WIDTH)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.layers(self.words(ids)).mean(1)


class Images(torch.nn.Module):
    """Some convolutions over images that are large to copy."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        widths = [3, 64, 128, 256, 512]
        layers: list[torch.nn.Module] = []
        for before, after in itertools.pairwise(widths):
            layers += [torch.nn.Conv2d(before, after, 3, stride=2), torch.nn.ReLU()]
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).mean((2, 3))


class First(torch.nn.Module):
    """Looks at one number of each sequence: only making the batch takes time."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return ids[:, 0] + 0


EXAMPLES: dict[str, tuple[type[torch.nn.Module], Callable[[], Any], dict[str, Any]]] = {
    "encoder": (Encoder, lambda: torch.randint(30000, (2, LENGTH)), {}),
    "images": (Images, lambda: torch.zeros(2, 3, 224, 224), {}),
    "first": (First, lambda: torch.zeros(2, 16, dtype=torch.int64), {"sequence": (1, 512)}),
}
ITEMS: dict[str, Callable[[], torch.Tensor]] = {
    "encoder": lambda: torch.randint(30000, (LENGTH,)),
    "images": lambda: torch.rand(3, 224, 224),
}


def package(name: str) -> Path:
    """The compiled model, made when it is first needed."""
    path = MODELS / f"{name}.pt2"
    if not path.exists():
        MODELS.mkdir(parents=True, exist_ok=True)
        module, example, options = EXAMPLES[name]
        native.compile(
            module().eval().to(DEVICE),
            example().to(DEVICE),
            path,
            max_batch=64,
            device=DEVICE,
            **options,
        )
    return path


def loop(
    streamer: ThreadedStreamer, item: Callable[[], Any], clients: int, seconds: float
) -> float:
    """Calls per second of client threads that have one item each."""
    counts = common.ClosedLoop(clients)

    def client(number: int) -> None:
        own = item()
        while True:
            start = time.perf_counter()
            try:
                streamer.predict([own])
            except StreamerClosed:
                return
            counts.calls[number].append(time.perf_counter() - start)

    for number in range(clients):
        threading.Thread(target=client, args=(number,), daemon=True).start()
    time.sleep(common.warm_up(seconds))
    counts.mark()
    time.sleep(seconds)
    counts.mark()
    return counts.metrics()["per_s"]


def milliseconds(function: Callable[[], object], seconds: float) -> float:
    """Of one call, with what it has the GPU do; the median."""
    took = []
    for _ in range(10):
        function()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        took.append(time.perf_counter() - start)
    return 1000 * sorted(took)[len(took) // 2]


def line(name: str, ours: float, other: float, unit: str, larger_is_better: bool) -> None:
    gain = ours / other if larger_is_better else other / ours
    print(f"{name:44} {ours:10.3f} {other:10.3f} {unit:8} {gain:6.2f} x", flush=True)


def pipeline(name: str, clients: int, seconds: float) -> None:
    """Batches of a native model against a Python callable that copies as everybody does."""
    model = native.NativeModel(package(name), device=DEVICE, warmup=(64,))
    eager = EXAMPLES[name][0]().eval().to(DEVICE)

    @torch.inference_mode()
    def predict(batch: list[torch.Tensor]) -> torch.Tensor:
        outputs: torch.Tensor = eager(torch.stack(batch).to(DEVICE)).cpu()
        return outputs

    rates = []
    for served in (model, predict):
        with ThreadedStreamer(served, 64, worker_timeout=None) as streamer:
            streamer.wait_ready()
            rates.append(loop(streamer, ITEMS[name], clients, seconds))
    line(f"{name}, {clients} clients: native / .to('cuda')", *rates, "calls/s", True)


def ragged(seconds: float) -> None:
    """64 sequences of up to 512 that lie on the GPU, in one batch."""
    random.seed(0)
    sequences = [
        torch.ones(random.randint(1, 512), dtype=torch.int64, device=DEVICE) for _ in range(64)
    ]
    model = native.NativeModel(package("first"), device=DEVICE, collate="pad")
    first, padded = First(), torch.nn.utils.rnn.pad_sequence
    ours = milliseconds(lambda: model(sequences), seconds)
    by_torch = milliseconds(lambda: list(first(padded(sequences, batch_first=True))), seconds)
    line("gather and pad: native / pad_sequence", ours, by_torch, "ms", False)
    same = [torch.ones(512, dtype=torch.int64, device=DEVICE) for _ in range(64)]
    ours = milliseconds(lambda: model(same), seconds)
    by_torch = milliseconds(lambda: list(first(torch.stack(same))), seconds)
    line("gather: native / torch.stack", ours, by_torch, "ms", False)


def images(seconds: float) -> None:
    """64 photographs of the host, normalised on the GPU."""
    photographs = torch.randint(0, 256, (64, 224, 224, 3), dtype=torch.uint8).pin_memory()
    mean = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)

    def on_the_host() -> torch.Tensor:
        numbers = photographs.permute(0, 3, 1, 2).float().div(255)
        return ((numbers - mean) / std).contiguous().to(DEVICE)

    def on_the_gpu() -> torch.Tensor:
        numbers = photographs.to(DEVICE).permute(0, 3, 1, 2).float().div(255)
        return ((numbers - mean.to(DEVICE)) / std.to(DEVICE)).contiguous()

    ours = milliseconds(lambda: native.normalize_images(photographs, device=DEVICE), seconds)
    line("images: ours / on the host", ours, milliseconds(on_the_host, seconds), "ms", False)
    line(
        "images: ours / operators on the GPU", ours, milliseconds(on_the_gpu, seconds), "ms", False
    )


def pipelines(clients: int, seconds: float) -> None:
    """Both models with client threads."""
    for name in ITEMS:
        pipeline(name, clients, seconds)


CASES: dict[str, Callable[[int, float], None]] = {
    "pipeline": pipelines,
    "ragged": lambda _, seconds: ragged(seconds),
    "images": lambda _, seconds: images(seconds),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=tuple(CASES), action="append")
    parser.add_argument("--clients", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(1, "torch sees no GPU\n")
    print(torch.cuda.get_device_name())
    for case in options.case or CASES:
        CASES[case](options.clients, options.seconds)
    common.leave()


if __name__ == "__main__":
    main()
