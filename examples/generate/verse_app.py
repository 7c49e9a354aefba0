"""A web service that generates text, and sends each character as soon as it is there.

uvicorn --port 5005 verse_app:app
curl -N -d '{"prompt": "Twinkle, twinkle"}' -H 'Content-Type: application/json' \\
    localhost:5005/generate
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from verse import BadOrder, Order, make_generator

from service_streamer import ThreadedStreamer, web

BATCH_SIZE = 32

app = FastAPI()
streamer = ThreadedStreamer(make_generator(BATCH_SIZE), BATCH_SIZE, worker_timeout=60)

Fields = Annotated[dict[str, Any], Body()]


def order_of(fields: dict[str, Any]) -> Order:
    """Return the order of a request. Raises BadOrder before the answer begins."""
    known = {field.name for field in dataclasses.fields(Order)}
    try:
        return Order(**{name: value for name, value in fields.items() if name in known})
    except TypeError as error:
        raise BadOrder(f"not an order: {error}") from error


@app.post("/generate")
async def generate(fields: Fields) -> StreamingResponse:
    # If the client disconnects, the stream is cancelled, and the text leaves at the next step.
    return StreamingResponse(streamer.astream(order_of(fields)), media_type="text/plain")


@app.post("/complete")
async def complete(fields: Fields) -> dict[str, str]:
    (characters,) = await streamer.apredict([order_of(fields)])
    return {"text": "".join(characters)}


# /streamer/ is the live page; /streamer/live and /streamer/ready are for probes
app.mount("/streamer", web.create_app(streamer))


@app.get("/explain", response_class=PlainTextResponse)
async def explain() -> str:
    return streamer.explain()


@app.exception_handler(BadOrder)
async def bad_order(request: Request, error: BadOrder) -> JSONResponse:
    return JSONResponse({"error": str(error)}, status_code=400)
