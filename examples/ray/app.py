"""A web application that runs on a node of a Ray cluster, with its model on all of them.

uvicorn app:app
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from models import Sentiment

from service_streamer import QueueFull, RayStreamer, RequestTimeout, StreamerError, web

# from 1 to 8 copies of the model, as the queue says; a real one has num_gpus=1
MOST = int(os.environ.get("MOST_REPLICAS", "8"))


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    # with a name, jobs of the cluster use the same replicas: see bulk.py
    with RayStreamer(
        Sentiment, 64, replicas=(1, MOST), name="sentiment", overflow="reject"
    ) as streamer:
        app.state.streamer = streamer
        # /streamer/ is the live page; /streamer/live and /streamer/ready are for probes
        app.mount("/streamer", web.create_app(streamer))
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/sentiment")
async def sentiment(request: Request, texts: list[str]) -> list[float]:
    scores: list[float] = await request.app.state.streamer.apredict(texts, timeout=10)
    return scores


@app.exception_handler(StreamerError)
def not_now(request: Request, error: StreamerError) -> JSONResponse:
    status = 504 if isinstance(error, RequestTimeout) else 503
    response = JSONResponse({"error": str(error)}, status)
    if isinstance(error, QueueFull):
        response.headers["Retry-After"] = str(max(1, round(error.retry_after)))
    return response
