"""What making a batch costs a BatchedModel in C++ and by torch's own functions, by hand.

Prints the median of a whole call in milliseconds, alone and beside a Python thread that computes.
The model looks at one number of each item. `plain` is what one writes without a BatchedModel. The
ways take turns, and torch has one thread. C++ is left out where ``_torch`` is missing.
"""

from __future__ import annotations

import argparse
import functools
import random
import statistics
from collections.abc import Callable, Iterator
from typing import Any

from cases import common, native
from cases.native_models import torch  # first: it finds torch
from service_streamer.torch import BatchedModel, _batching, _by_torch

ROUNDS = 5
Call = Callable[[], object]


def pad_plainly(items: list[Any]) -> list[Any]:
    ids = torch.nn.utils.rnn.pad_sequence(items, batch_first=True)
    lengths = torch.tensor([len(item) for item in items])
    mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
    return list(first_number(ids, mask).unbind())


def stack_plainly(items: list[Any]) -> list[Any]:
    return list(first_pixel(torch.stack(items)).unbind())


def first_number(ids: Any, mask: Any) -> Any:
    return ids[:, 0] * mask[:, 0]


def first_pixel(images: Any) -> Any:
    return images[:, 0, 0, 0] + 0


def sequences(count: int, longest: int) -> list[Any]:
    random.seed(0)
    return [torch.ones(random.randint(1, longest), dtype=torch.int64) for _ in range(count)]


CASES: dict[str, tuple[Callable[[], list[Any]], Any, Any, dict[str, Any]]] = {
    "16 x <=128 int64, mask": (
        lambda: sequences(16, 128),
        pad_plainly,
        first_number,
        {"collate": "pad", "mask": "mask"},
    ),
    "64 x <=512 int64, mask": (
        lambda: sequences(64, 512),
        pad_plainly,
        first_number,
        {"collate": "pad", "mask": "mask"},
    ),
    "64 x 3x224x224 float32": (
        lambda: [torch.rand(3, 224, 224) for _ in range(64)],
        stack_plainly,
        first_pixel,
        {},
    ),
}


def ways(items: list[Any], plain: Any, model: Any, settings: dict[str, Any]) -> Iterator[Any]:
    """(name, call) for each way."""
    try:
        modules = {"C++": _batching.load_module(), "torch": _by_torch}
    except ImportError:
        modules = {"torch": _by_torch}
    for name, module in modules.items():
        _batching._loaded = module
        batched = BatchedModel(model, **settings)
        batched(items)  # keeps what makes its batches
        yield name, functools.partial(in_this_way, module, batched, items)
    yield "plain", torch.no_grad()(functools.partial(plain, items))


def in_this_way(module: Any, batched: BatchedModel, items: list[Any]) -> None:
    _batching._loaded = module
    batched(items)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each figure")
    seconds = parser.parse_args().seconds / ROUNDS
    torch.set_num_threads(1)
    busy = native.Busy()
    print(f"torch {torch.__version__}; p50 in ms, alone / beside a busy thread")
    for case, (make, *rest) in CASES.items():
        calls = dict(ways(make(), *rest))
        alone: dict[str, list[float]] = {name: [] for name in calls}
        beside: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(ROUNDS):
            for name, call in calls.items():
                alone[name].append(native.repeated(call, seconds)["p50_ms"])
                busy.start()
                beside[name].append(native.repeated(call, seconds)["p50_ms"])
                busy.stop()
        for name in calls:
            figures = [statistics.median(each[name]) for each in (alone, beside)]
            print(f"{case:24} {name:6} {figures[0]:8.3f} {figures[1]:8.3f}", flush=True)
    common.leave()


if __name__ == "__main__":
    main()
