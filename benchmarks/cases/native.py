"""Native models beside a busy Python thread, and what making a batch costs.

Needs the module _torch (make test-torch).
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cases import common

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "build" / "torch"))

import torch  # noqa: E402

import service_streamer.torch as native  # noqa: E402
from service_streamer import ThreadedStreamer  # noqa: E402

MODELS = ROOT / "build" / "bench-models"
WIDTH, LENGTH = 128, 32


class Encoder(torch.nn.Module):
    """4 layers of width 128, sequences of 32."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.words = torch.nn.Embedding(1000, WIDTH)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.layers(self.words(ids)).mean(1)


class Nothing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0


class Corner(torch.nn.Module):
    """Looks at one number of each image: only making the batch takes time."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, 0, 0, 0] + 0


class Masked(torch.nn.Module):
    """Looks at one number of each input of padded sequences."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return ids[:, 0] + mask[:, 0] + lengths


def ids() -> torch.Tensor:
    return torch.randint(1000, (LENGTH,))


EXAMPLES: dict[str, tuple[type[torch.nn.Module], Callable[[], Any], dict[str, Any]]] = {
    "encoder": (Encoder, lambda: torch.randint(1000, (2, LENGTH)), {}),
    "nothing": (Nothing, lambda: torch.zeros(2, 8), {}),
    "corner": (Corner, lambda: torch.zeros(2, 3, 224, 224), {}),
    "masked": (
        Masked,
        lambda: (
            *(torch.zeros(2, 16, dtype=torch.int64) for _ in range(2)),
            torch.zeros(2, dtype=torch.int64),
        ),
        {"sequence": (1, 512)},
    ),
}


def package(name: str) -> Path:
    """The compiled model, made when it is first needed."""
    path = MODELS / f"{name}.pt2"
    if not path.exists():
        MODELS.mkdir(parents=True, exist_ok=True)
        module, example, options = EXAMPLES[name]
        native.compile(module().eval(), example(), path, max_batch=64, **options)
    return path


def eager(module: torch.nn.Module) -> Callable[[list[Any]], Any]:
    @torch.no_grad()
    def predict(batch: list[Any]) -> Any:
        return module(torch.stack(batch))

    return predict


def streamer(peer: str, name: str, workers: int = 1) -> ThreadedStreamer:
    torch.set_num_threads(1)
    if peer == "native":
        model: Any = native.NativeModel(package(name), workers=workers, intra_op_threads=1)
    else:
        model = eager(EXAMPLES[name][0]().eval())
    return ThreadedStreamer(model, 64, worker_timeout=None)


class Busy:
    """A Python thread that computes all the time."""

    def __init__(self) -> None:
        self.rounds = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while True:
            for _ in range(1000):
                pass
            self.rounds += 1

    def start(self) -> None:
        self._thread.start()

    def speed(self, seconds: float) -> float:
        before, begin = self.rounds, time.perf_counter()
        time.sleep(seconds)
        return (self.rounds - before) / (time.perf_counter() - begin)


@contextmanager
def busy(wanted: bool) -> Iterator[Busy | None]:
    thread = Busy() if wanted else None
    if thread is not None:
        thread.start()
    yield thread


async def tasks(
    served: ThreadedStreamer, clients: int, seconds: float, with_busy: bool
) -> dict[str, float]:
    """Tasks that ask for one item each: how fast they are, and the busy thread beside them."""
    loop = common.ClosedLoop(clients)

    async def client(number: int) -> None:
        while True:
            start = time.perf_counter()
            await served.apredict([ids()])
            loop.calls[number].append(time.perf_counter() - start)

    with busy(with_busy) as thread:
        alone = thread.speed(0.5) if thread is not None else 0.0
        running = [asyncio.create_task(client(number)) for number in range(clients)]
        await asyncio.sleep(common.warm_up(seconds))
        before = thread.rounds if thread is not None else 0
        loop.mark()
        begin = time.perf_counter()
        await asyncio.sleep(seconds)
        loop.mark()
        metrics = loop.metrics()
        if thread is not None:
            speed = (thread.rounds - before) / (time.perf_counter() - begin)
            metrics["busy_share"] = speed / alone
        del running
        return metrics


def caller(served: ThreadedStreamer, item: Any, seconds: float) -> dict[str, float]:
    """One blocking caller."""
    loop = common.ClosedLoop(1)
    end_of_warm_up = time.perf_counter() + common.warm_up(seconds)
    end = end_of_warm_up + seconds
    while (start := time.perf_counter()) < end:
        if start >= end_of_warm_up and not loop.marks:
            loop.mark()
        served.predict([item])
        loop.calls[0].append(time.perf_counter() - start)
    loop.mark()
    return loop.metrics()


def many(served: ThreadedStreamer, clients: int, seconds: float) -> dict[str, float]:
    """Client threads."""
    loop = common.ClosedLoop(clients)

    def client(number: int) -> None:
        item = ids()
        while True:
            start = time.perf_counter()
            served.predict([item])
            loop.calls[number].append(time.perf_counter() - start)

    for number in range(clients):
        threading.Thread(target=client, args=(number,), daemon=True).start()
    time.sleep(common.warm_up(seconds))
    loop.mark()
    time.sleep(seconds)
    loop.mark()
    return loop.metrics()


def repeated(function: Callable[[], object], seconds: float) -> dict[str, float]:
    took: list[float] = []
    for _ in range(3):
        function()
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        function()
        took.append(time.perf_counter() - start)
    return common.latencies(took)


def collate(peer: str, seconds: float) -> dict[str, float]:
    """64 images in a batch."""
    images = [torch.rand(3, 224, 224) for _ in range(64)]
    if peer == "native":
        model = native.NativeModel(package("corner"), intra_op_threads=1)
        return repeated(functools.partial(model, images), seconds)
    return repeated(lambda: torch.stack(images)[:, 0, 0, 0] + 0, seconds)


def pad(peer: str, seconds: float) -> dict[str, float]:
    """64 sequences of up to 512 in a batch."""
    random.seed(0)
    sequences = [torch.ones(random.randint(1, 512), dtype=torch.int64) for _ in range(64)]
    if peer == "native":
        model = native.NativeModel(
            package("masked"), collate="pad", mask="mask", lengths="lengths", intra_op_threads=1
        )
        return repeated(functools.partial(model, [(each,) for each in sequences]), seconds)
    padded = torch.nn.utils.rnn.pad_sequence

    def by_torch() -> torch.Tensor:
        lengths = torch.tensor([len(each) for each in sequences])
        together = padded(sequences, batch_first=True)
        mask = (torch.arange(together.shape[1]) < lengths[:, None]).to(torch.int64)
        return together[:, 0] + mask[:, 0] + lengths

    return repeated(by_torch, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", choices=("native", "native-eager"), default="native")
    parser.add_argument(
        "--case",
        choices=("tasks", "caller", "threads", "nothing", "collate", "pad"),
        default="tasks",
    )
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--switch", type=float, default=0.005, help="sys.setswitchinterval")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=1.5)
    options = parser.parse_args()
    sys.setswitchinterval(options.switch)
    if options.case in ("collate", "pad"):
        measure = collate if options.case == "collate" else pad
        common.answer(measure(options.peer, options.seconds))
    elif options.case == "tasks":
        served = streamer(options.peer, "encoder")
        common.answer(asyncio.run(tasks(served, options.clients, options.seconds, options.busy)))
    elif options.case == "threads":
        served = streamer(options.peer, "encoder", options.workers)
        common.answer(many(served, options.clients, options.seconds))
    else:
        nothing = options.case == "nothing"
        served = streamer(options.peer, "nothing" if nothing else "encoder")
        with busy(options.busy):
            item = torch.zeros(8) if nothing else ids()
            common.answer(caller(served, item, options.seconds))
    common.leave()


if __name__ == "__main__":
    main()
