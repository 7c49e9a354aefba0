"""The least an ASGI server can be asked for: no framework, one awaited prediction per request."""

import os
from typing import Any

from cases import common
from compare import adapters

predict = adapters.apredict(os.environ["BENCH_PEER"], common.MODELS[os.environ["BENCH_MODEL"]])


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    answer = str((await predict([1]))[0]).encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
