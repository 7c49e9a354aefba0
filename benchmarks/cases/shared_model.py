"""Memory of four web processes that share one worker with a model of 200 MB."""

from __future__ import annotations

import os
from pathlib import Path

import flask
from compare import adapters

from cases import common
from service_streamer import ManagedModel, Streamer

WEB_PROCESSES = 4
MEGABYTES = 200


class Large(ManagedModel):
    def init_model(self) -> None:
        self.model = bytearray(os.urandom(1)) * (MEGABYTES << 20)

    def predict(self, batch: list[int]) -> list[int]:
        return [self.model[item] for item in batch]


def proportional_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no Pss of process {pid}")


def main() -> None:
    common.arguments(__doc__)
    streamer = Streamer(Large, adapters.BATCH_SIZE, wait_for_worker_ready=True)
    application = flask.Flask(__name__)

    @application.get("/")
    def index() -> str:
        return str(streamer.predict([0]))

    ready, go = os.pipe(), os.pipe()
    for _ in range(WEB_PROCESSES):
        if os.fork() == 0:
            application.test_client().get("/")
            os.write(ready[1], b".")
            os.read(go[0], 1)
            os._exit(0)
    for _ in range(WEB_PROCESSES):
        os.read(ready[0], 1)
    total = sum(proportional_mb(pid) for pid in common.descendants(os.getpid()))
    os.write(go[1], b"." * WEB_PROCESSES)
    common.answer({"pss_mb": total})
    common.leave()


if __name__ == "__main__":
    main()
