"""A web service that sends each word when the model has made it, as server-sent events.

uvicorn --port 5005 events_app:app
"""

import json
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, StreamingResponse
from words import LONGEST, Words

from service_streamer import ThreadedStreamer, web

PAGE = """<!doctype html>
<title>Streaming</title>
<form><input name="line" value="Jack and"> <button>Continue</button></form>
<p></p>
<script>
  document.forms[0].onsubmit = (event) => {
    event.preventDefault();
    const line = document.forms[0].line.value;
    const page = document.querySelector("p");
    page.textContent = line;
    const events = new EventSource("words?line=" + encodeURIComponent(line));
    events.onmessage = (message) => { page.textContent += " " + JSON.parse(message.data); };
    events.addEventListener("end", () => events.close());
  };
</script>
"""

app = FastAPI()
streamer = ThreadedStreamer(Words().generate, batch_size=64)


@app.get("/", response_class=HTMLResponse)
async def page() -> str:
    return PAGE


@app.get("/words")
async def words(line: str) -> StreamingResponse:
    async def events() -> AsyncIterator[str]:
        # A client that disconnects cancels this task, and so the stream. The buffer holds a whole
        # answer, so no slow client delays the others.
        async with streamer.astream(line, buffer=LONGEST) as stream:
            async for word in stream:
                yield f"data: {json.dumps(word)}\n\n"
        yield "event: end\ndata:\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


# /streamer/ is the live page; /streamer/live and /streamer/ready are for probes
app.mount("/streamer", web.create_app(streamer))
