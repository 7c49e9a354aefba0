"""Native models beside a busy Python thread, and what making a batch costs.

`ours` is a package of AOTInductor on C++ threads, `ours-eager` the module as a predict function.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import service_streamer.torch as native
from cases import common
from cases.native_models import EXAMPLES, eager, ids, package, torch  # first: it finds torch
from service_streamer import ThreadedStreamer

Metrics = dict[str, float]


def streamer(peer: str, name: str, workers: int = 1) -> ThreadedStreamer:
    torch.set_num_threads(1)
    if peer == "ours":
        model: Any = native.NativeModel(package(name), workers=workers, intra_op_threads=1)
    else:
        model = eager(EXAMPLES[name][0]().eval())
    return ThreadedStreamer(model, 64, worker_timeout=None)


class Busy:
    """A Python thread that computes all the time."""

    def __init__(self) -> None:
        self.rounds = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            for _ in range(1000):
                pass
            self.rounds += 1

    def count(self) -> tuple[int, float]:
        return self.rounds, time.perf_counter()


def speed(before: tuple[int, float], after: tuple[int, float]) -> float:
    return (after[0] - before[0]) / (after[1] - before[1])


def tasks(options: argparse.Namespace) -> Metrics:
    """Tasks of one loop that ask for one item each, first alone and then beside a busy thread."""
    served = streamer(options.peer, "encoder")
    loop = common.ClosedLoop(32)

    async def client(number: int) -> None:
        item = ids()  # once: torch gives up the GIL in each function, and has it back 5 ms later
        while True:
            start = time.perf_counter()
            await served.apredict([item])
            loop.calls[number].append(time.perf_counter() - start)

    async def window() -> Metrics:
        await asyncio.sleep(common.warm_up(options.seconds))
        loop.marks.clear()
        loop.mark()
        await asyncio.sleep(options.seconds)
        loop.mark()
        return loop.metrics()

    async def main() -> Metrics:
        running = [asyncio.create_task(client(number)) for number in range(32)]
        quiet = await window()
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        busy = Busy()
        begin = busy.count()
        await asyncio.sleep(0.5)
        alone = speed(begin, busy.count())
        running += [asyncio.create_task(client(number)) for number in range(32)]
        begin = busy.count()
        beside = await window()
        beside["quiet_per_s"] = quiet["per_s"]
        beside["kept"] = beside["per_s"] / quiet["per_s"]
        beside["busy_kept"] = speed(begin, busy.count()) / alone
        return beside

    return asyncio.run(main())


def one_caller(served: ThreadedStreamer, item: Any, seconds: float) -> Metrics:
    """A closed loop of one blocking caller."""
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


def caller(options: argparse.Namespace) -> Metrics:
    """One blocking caller beside a busy thread."""
    served = streamer(options.peer, "encoder")
    Busy()
    return one_caller(served, ids(), options.seconds)


def threads(options: argparse.Namespace) -> Metrics:
    """64 client threads."""
    served = streamer(options.peer, "encoder", options.workers)
    loop = common.ClosedLoop(64)

    def client(number: int) -> None:
        item = ids()
        while True:
            start = time.perf_counter()
            served.predict([item])
            loop.calls[number].append(time.perf_counter() - start)

    for number in range(64):
        threading.Thread(target=client, args=(number,), daemon=True).start()
    time.sleep(common.warm_up(options.seconds))
    loop.mark()
    time.sleep(options.seconds)
    loop.mark()
    return loop.metrics()


def nothing(options: argparse.Namespace) -> Metrics:
    """A model that does next to nothing, beyond its own time and that of the two wake-ups."""
    item = torch.zeros(8)
    metrics = one_caller(streamer(options.peer, "nothing"), item, options.seconds)
    plain = one_caller(ThreadedStreamer(common.noop, 64), 0, options.seconds)
    if options.peer == "ours":
        runner = torch._inductor.aoti_load_package(str(package("nothing")))
    else:
        runner = EXAMPLES["nothing"][0]().eval()
    batch = item[None]
    with torch.inference_mode():
        own = repeated(lambda: runner(batch), options.seconds / 2)
    metrics["own_ms"], metrics["wakes_ms"] = own["p50_ms"], plain["p50_ms"]
    metrics["beyond_ms"] = metrics["p50_ms"] - own["p50_ms"] - plain["p50_ms"]
    return metrics


def repeated(function: Callable[[], object], seconds: float) -> Metrics:
    took: list[float] = []
    for _ in range(3):
        function()
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        function()
        took.append(time.perf_counter() - start)
    return common.latencies(took)


def collate(options: argparse.Namespace) -> Metrics:
    """64 images in a batch."""
    images = [torch.rand(3, 224, 224) for _ in range(64)]
    if options.peer == "ours":
        model = native.NativeModel(package("corner"), intra_op_threads=1)
        return repeated(functools.partial(model, images), options.seconds)
    return repeated(lambda: torch.stack(images), options.seconds)


def pad(options: argparse.Namespace) -> Metrics:
    """64 sequences of up to 512 in a batch, with mask and lengths.

    A call of ours also reads the items, runs the model and cuts its outputs: what it costs with
    sequences of 1 is taken off.
    """
    random.seed(0)
    lengths = [random.randint(1, 512) for _ in range(64)]
    if options.peer == "ours":
        model = native.NativeModel(
            package("masked"), collate="pad", mask="mask", lengths="lengths", intra_op_threads=1
        )
        long = [(torch.ones(length, dtype=torch.int64),) for length in lengths]
        short = [(torch.ones(1, dtype=torch.int64),) for _ in lengths]
        metrics = repeated(functools.partial(model, long), options.seconds)
        around = repeated(functools.partial(model, short), options.seconds)
        return {**metrics, "pad_ms": metrics["p50_ms"] - around["p50_ms"]}
    sequences = [torch.ones(length, dtype=torch.int64) for length in lengths]
    by_torch = functools.partial(
        torch.nn.utils.rnn.pad_sequence, sequences, batch_first=True, padding_value=0
    )
    metrics = repeated(by_torch, options.seconds)
    return {**metrics, "pad_ms": metrics["p50_ms"]}


CASES = {each.__name__: each for each in (tasks, caller, threads, nothing, collate, pad)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", choices=("ours", "ours-eager"), default="ours")
    parser.add_argument("--case", choices=sorted(CASES), required=True)
    parser.add_argument("--switch", type=float, default=0.005, help="sys.setswitchinterval")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.5)
    options = parser.parse_args()
    sys.setswitchinterval(options.switch)
    common.answer(CASES[options.case](options))
    common.leave()


if __name__ == "__main__":
    main()
