"""A FastAPI application with the routes of service_streamer.web, and what it is compared with.

BENCH_MODEL=model: a Streamer with two worker processes, whose queue 128 clients keep full.
BENCH_MODEL=noop: a ThreadedStreamer, with the routes only if BENCH_METRICS=1.
BENCH_PEER=ours-bare: no streamer. Its predict route sleeps, and its other routes answer at once.
"""

import asyncio
import os
from typing import Any

from cases import common
from compare import adapters
from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

import service_streamer
from service_streamer import web

CLIENTS = 128
WORKERS = 2
BATCH_SIZE = 4  # so that the model, and not the web server, is the limit
MAX_QUEUE = 64  # the rest of the 128 requests are in batches, or wait for room
LATENCY = CLIENTS * common.service_time(BATCH_SIZE) / (WORKERS * BATCH_SIZE)

app = FastAPI()
is_bare = os.environ["BENCH_PEER"] == "ours-bare"
is_saturated = os.environ["BENCH_MODEL"] == "model"

if is_bare:

    async def predict(batch: list[Any]) -> list[Any]:
        await asyncio.sleep(LATENCY)
        return batch

    @app.get("/streamer/ready")
    def ready() -> dict[str, bool]:
        return {"ready": True}

    @app.get("/streamer/metrics")
    def metrics() -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

else:
    streamer = (
        service_streamer.Streamer(common.model, BATCH_SIZE, worker_num=WORKERS, max_queue=MAX_QUEUE)
        if is_saturated
        else adapters.streamer("ours", common.noop)
    )
    streamer.wait_ready()
    predict = streamer.apredict
    if is_saturated or os.environ.get("BENCH_METRICS") == "1":
        app.mount("/streamer", web.create_app(streamer))


@app.get("/")
async def index() -> dict[str, int]:
    return {"answer": (await predict([1]))[0]}
