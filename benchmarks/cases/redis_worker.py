"""The workers of a Redis queue, for a measurement: runs until it is killed."""

from __future__ import annotations

import argparse
import logging
from typing import Any

from compare import adapters

from cases import common
from service_streamer import ManagedModel, run_redis_workers_forever


class Noop(ManagedModel):
    def init_model(self) -> None: ...

    def predict(self, batch: list[Any]) -> list[Any]:
        return common.noop(batch)


class Model(Noop):
    def predict(self, batch: list[Any]) -> list[Any]:
        return common.model(batch)


MODELS = {"noop": Noop, "model": Model}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--broker", required=True)
    parser.add_argument("--model", choices=sorted(MODELS), required=True)
    parser.add_argument("--workers", type=int, required=True)
    options = parser.parse_args()
    logging.disable(logging.INFO)
    run_redis_workers_forever(
        MODELS[options.model],
        adapters.BATCH_SIZE,
        worker_num=options.workers,
        redis_broker=options.broker,
        **adapters.settings(options.peer),
    )


if __name__ == "__main__":
    main()
