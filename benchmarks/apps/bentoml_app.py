"""A BentoML service that returns its batch; with its metrics if BENCH_METRICS=1."""

import os

import bentoml
from compare import adapters


@bentoml.service(
    workers=1,
    metrics={"enabled": os.environ["BENCH_METRICS"] == "1"},
    logging={"access": {"enabled": False}},
)
class Service:
    @bentoml.api(
        batchable=True,
        max_batch_size=adapters.BATCH_SIZE,
        route="/inference",
    )
    def predict(self, items: list[int]) -> list[int]:
        return items
