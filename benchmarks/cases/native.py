"""Native models beside a busy Python thread, and what making a batch costs.

`ours` is a package of AOTInductor on C++ threads, `ours-eager` the module as a predict function.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import service_streamer.torch as native
from cases import common
from cases.native_models import EXAMPLES, eager, ids, package, torch  # first: it finds torch
from cases.threads import measure
from service_streamer import ThreadedStreamer

Metrics = dict[str, float]

ROUNDS = 3  # of windows that are compared with each other


def streamer(peer: str, name: str, workers: int = 1) -> ThreadedStreamer:
    torch.set_num_threads(1)
    if peer == "ours":
        model: Any = native.NativeModel(package(name), workers=workers, intra_op_threads=1)
    else:
        model = eager(EXAMPLES[name][0]().eval())
    return ThreadedStreamer(model, 64, worker_timeout=None)


class Busy:
    """A Python thread that computes, from start() until stop()."""

    def __init__(self) -> None:
        self._rounds = 0
        self._cpu = 0.0
        self._on = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def start(self) -> None:
        self._on.set()

    def stop(self) -> None:
        self._on.clear()

    def so_far(self) -> dict[str, float]:
        """Return its rounds, and the seconds for which it had a core."""
        return {"rounds": self._rounds, "cpu": self._cpu}

    def _run(self) -> None:
        while self._on.wait():
            for _ in range(1000):
                pass
            self._rounds += 1
            self._cpu = time.thread_time()


def tasks(options: argparse.Namespace) -> Metrics:
    """Tasks of one loop that ask for one item each, and a busy thread: each alone, then both.

    In windows that take turns, for the speed of a virtual machine drifts; so much that what the
    thread keeps is told in rounds and in the time that it had a core.
    """
    served = streamer(options.peer, "encoder")
    loop = common.ClosedLoop(32)
    busy = Busy()

    async def client(number: int) -> None:
        item = ids()  # once: torch gives up the GIL in each function, and has it back 5 ms later
        while True:
            start = time.perf_counter()
            await served.apredict([item])
            loop.calls[number].append(time.perf_counter() - start)

    async def window(clients: int, computing: bool) -> Metrics:
        running = [asyncio.create_task(client(number)) for number in range(clients)]
        if computing:
            busy.start()
        await asyncio.sleep(common.warm_up(options.seconds))
        loop.marks.clear()
        loop.mark()
        before = busy.so_far()
        await asyncio.sleep(options.seconds)
        loop.mark()
        after = busy.so_far()
        busy.stop()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        (begin, _), (end, _) = loop.marks
        metrics = loop.metrics() if clients else {}
        return metrics | {key: (after[key] - before[key]) / (end - begin) for key in after}

    async def main() -> Metrics:
        quiet, alone, both = [], [], []
        for _ in range(ROUNDS):
            quiet.append(await window(32, computing=False))
            alone.append(await window(0, computing=True))
            both.append(await window(32, computing=True))
        return {
            "per_s": mean(both, "per_s"),
            "quiet_per_s": mean(quiet, "per_s"),
            "p50_ms": mean(both, "p50_ms"),
            "kept": mean(both, "per_s") / mean(quiet, "per_s"),
            "busy_kept": mean(both, "cpu") / mean(alone, "cpu"),
            "busy_rounds_kept": mean(both, "rounds") / mean(alone, "rounds"),
        }

    return asyncio.run(main())


def mean(windows: list[Metrics], metric: str) -> float:
    return statistics.mean(window[metric] for window in windows)


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
    Busy().start()
    return one_caller(served, ids(), options.seconds)


def threads(options: argparse.Namespace) -> Metrics:
    """64 client threads, of one worker and of two in turn."""
    rates: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(ROUNDS):
        for workers, measured in rates.items():
            with streamer(options.peer, "encoder", workers) as served:
                items = [ids() for _ in range(64)]
                measured.append(measure(served.predict, items, options.seconds)["per_s"])
    one, two = map(statistics.mean, rates.values())
    return {"one_per_s": one, "two_per_s": two, "gain": two / one}


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
        whole, around = [], []
        for _ in range(ROUNDS):
            whole.append(repeated(functools.partial(model, long), options.seconds / ROUNDS))
            around.append(repeated(functools.partial(model, short), options.seconds / ROUNDS))
        call, rest = mean(whole, "p50_ms"), mean(around, "p50_ms")
        return {"p50_ms": call, "pad_ms": call - rest}
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
    parser.add_argument("--seconds", type=float, default=1.5)
    options = parser.parse_args()
    sys.setswitchinterval(options.switch)
    common.answer(CASES[options.case](options))
    common.leave()


if __name__ == "__main__":
    main()
