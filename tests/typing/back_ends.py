"""A back end of another package, as type checkers of its author see it. Never run."""

from __future__ import annotations

from service_streamer.extend import (
    Backend,
    BackendStreamer,
    Batch,
    EngineLike,
    Options,
    WaitingRoom,
    answer,
)


class Doubler(WaitingRoom):
    def __init__(self, options: Options) -> None:
        self.options = options
        super().__init__(options, threads=2)

    def hand_on(self, batch: Batch) -> None:
        if len(batch) == 1:
            batch.complete([2 * item for item in batch.items])
        else:
            answer(batch, self.ask, self.options)

    def ask(self, items: list[int]) -> list[int]:
        return [2 * item for item in items]


options = Options(batch_size=64)
streamer: BackendStreamer[int, list[int], int] = BackendStreamer(options, Doubler, name="doubler")
outputs: list[int] = streamer.predict([1])
backend: Backend = Doubler(options)
engine: EngineLike = backend.engine
