"""The same model behind LitServe. BENCH_METRICS=1: with metrics.

`python -m apps.litserve_app PORT`. PROMETHEUS_MULTIPROC_DIR must name a directory.
"""

import os
import sys
import time

import litserve
from cases import common
from compare import adapters
from fastapi import Request
from prometheus_client import CollectorRegistry, Histogram, make_asgi_app, multiprocess

model = common.MODELS[os.environ["BENCH_MODEL"]]
HAS_METRICS = os.environ["BENCH_METRICS"] == "1"
DURATION = Histogram("inference_seconds", "Time of a batch in the model", ["name"])


class PrometheusLogger(litserve.Logger):
    """As the documentation of LitServe shows it."""

    def process(self, key: str, value: float) -> None:
        DURATION.labels(key).observe(value)


class Api(litserve.LitAPI):
    def setup(self, device: str) -> None:
        pass

    def decode_request(self, request: Request) -> object:
        return request  # LitServe has parsed its JSON

    def predict(self, batch: list[int]) -> list[int]:
        start = time.perf_counter()
        outputs: list[int] = model(batch)
        if HAS_METRICS:
            self.log("predict", time.perf_counter() - start)
        return outputs

    def encode_response(self, output: int) -> dict[str, int]:
        return {"answer": output}


def main() -> None:
    api = Api(max_batch_size=adapters.BATCH_SIZE, batch_timeout=0.001, api_path="/inference")
    loggers = []
    if HAS_METRICS:
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)
        loggers.append(PrometheusLogger())
        loggers[0].mount("/metrics", make_asgi_app(registry=registry))
    server = litserve.LitServer(api, accelerator="cpu", loggers=loggers or None)
    server.run(
        host="127.0.0.1",
        port=int(sys.argv[1]),
        num_api_servers=1,
        generate_client_file=False,
        log_level="error",
        access_log=False,
    )


if __name__ == "__main__":
    main()
