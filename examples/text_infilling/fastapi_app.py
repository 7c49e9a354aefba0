"""The application of flask_app.py with FastAPI: waiting for a batch does not block other requests.

uvicorn --port 5005 fastapi_app:app
"""

from typing import Annotated

from fastapi import Depends, FastAPI, Form, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from model import BadSentence, TextInfillingModel

from service_streamer import ThreadedStreamer, web

app = FastAPI()
model = TextInfillingModel()
streamer = ThreadedStreamer(model.predict, batch_size=64, max_latency=0.1)


async def sentences(s: Annotated[list[str], Form(default_factory=list)]) -> list[str]:
    """Return the form's fields `s`. They are checked before they share a batch with others."""
    if not s:
        raise BadSentence("the form has no field 's'")
    for sentence in s:
        model.encode(sentence)
    return s


@app.post("/naive")
def naive_predict(inputs: Annotated[list[str], Depends(sentences)]) -> list[str]:
    return model.predict(inputs)


@app.post("/stream")
async def stream_predict(inputs: Annotated[list[str], Depends(sentences)]) -> list[str]:
    return await streamer.apredict(inputs)


# /streamer/ is the live page; /streamer/live and /streamer/ready are for probes
app.mount("/streamer", web.create_app(streamer))


@app.get("/explain", response_class=PlainTextResponse)
async def explain() -> str:
    return streamer.explain()


@app.exception_handler(BadSentence)
async def bad_sentence(request: Request, error: BadSentence) -> JSONResponse:
    return JSONResponse({"error": str(error)}, status_code=400)
