"""The application of fastapi_app.py for web processes that connect to a separate model process.

python -m service_streamer serve model:ManagedBertModel --address @text-infilling
uvicorn --workers 4 --port 5005 shared_fastapi_app:app

Both can be restarted independently. While the model is away, requests wait for it.
"""

import os
from typing import Annotated

from fastapi import FastAPI, Form, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from model import BadSentence

from service_streamer import Streamer, web

app = FastAPI()
streamer = Streamer.connect(os.environ.get("MODEL_ADDRESS", "@text-infilling"))


@app.post("/stream")
async def stream_predict(s: Annotated[list[str], Form(default_factory=list)]) -> list[str]:
    if not s:
        raise BadSentence("the form has no field 's'")
    return await streamer.apredict(s)


# /streamer/ is the live page; /streamer/live and /streamer/ready are for probes
app.mount("/streamer", web.create_app(streamer))


@app.get("/explain", response_class=PlainTextResponse)
def explain() -> str:
    return streamer.explain()


@app.exception_handler(BadSentence)
async def bad_sentence(request: Request, error: BadSentence) -> JSONResponse:
    return JSONResponse({"error": str(error)}, status_code=400)
