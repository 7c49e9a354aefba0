"""An ONNX file behind mosec's Rust server, as its documentation does it: np.stack and a session."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from compare import adapters
from mosec import Server, Worker

FILE = Path(os.environ["BENCH_MODELS"], "model", "1", "model.onnx")
MAX_WAIT_MS = 1


class Model(Worker):
    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ["BENCH_THREADS"])  # 0: all cores
        # The threads of our server sleep, too: on the cores of the clients spinning costs both.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(
            FILE, options, providers=["CPUExecutionProvider"]
        )

    def deserialize(self, data: bytes) -> Any:
        if os.environ["BENCH_MODEL"] == "floats":
            return np.frombuffer(data, np.float32)
        return np.array(json.loads(data), np.float32)

    def serialize(self, data: Any) -> bytes:
        if os.environ["BENCH_MODEL"] == "floats":
            return bytes(data.data)
        return json.dumps(data.tolist()).encode()

    def forward(self, data: list[Any]) -> Any:
        return self.session.run(None, {"x": np.stack(data)})[0]


if __name__ == "__main__":
    server = Server()
    server.append_worker(Model, max_batch_size=adapters.BATCH_SIZE, max_wait_time=MAX_WAIT_MS)
    server.run()
