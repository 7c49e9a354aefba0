"""The same model behind mosec's own Rust server; bytes in and out, so no codec is measured."""

import os

from cases import common
from compare import adapters
from mosec import Server, Worker

model = common.MODELS[os.environ["BENCH_MODEL"]]
MAX_WAIT_MS = 1


class Model(Worker):
    def deserialize(self, data: bytes) -> bytes:
        return data

    def serialize(self, data: bytes) -> bytes:
        return data

    def forward(self, data: list[bytes]) -> list[bytes]:
        return model(data)


if __name__ == "__main__":
    server = Server()
    server.append_worker(Model, max_batch_size=adapters.BATCH_SIZE, max_wait_time=MAX_WAIT_MS)
    server.run()
