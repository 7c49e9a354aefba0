"""Closed loop with large items: a float32 array there, a number back."""

from __future__ import annotations

from typing import Any

import numpy
from compare import adapters

from cases import common, threads


def untouched(batch: list[Any]) -> list[float]:
    return [0.0] * len(batch)


def added_up(batch: list[Any]) -> list[float]:
    return [float(array.sum()) for array in batch]


MODELS = {"noop": untouched, "model": added_up}


def main() -> None:
    options = common.arguments(__doc__, clients=1, kilobytes=602)
    predict = adapters.predict(options.peer, MODELS[options.model], options.workers, options.over)
    size = options.kilobytes * 250
    items = [numpy.ones(size, dtype=numpy.float32) for _ in range(options.clients)]
    common.answer(threads.measure(predict, items, options.seconds))
    common.leave()


if __name__ == "__main__":
    main()
