"""A FastAPI application that awaits its answer."""

import os

from cases import common
from compare import adapters
from fastapi import FastAPI

app = FastAPI()
predict = adapters.apredict(os.environ["BENCH_PEER"], common.MODELS[os.environ["BENCH_MODEL"]])


@app.get("/")
async def index() -> dict[str, int]:
    return {"answer": (await predict([1]))[0]}
