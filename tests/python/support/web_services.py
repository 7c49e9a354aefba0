"""The web services of the examples: started, asked and stopped."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import httpx

LONG = 60  # seconds: longer than anything here takes; reached only by a failure

TUTORIAL = {
    "twinkle twinkle [MASK] star.": "little",
    "Happy birthday to [MASK].": "you",
    "the answer to life, the [MASK], and everything.": "universe",
}
"""what the tutorial's model makes of sentences"""


@contextmanager
def running(folder, *command, stop=signal.SIGTERM, **environment):
    """Run an example in its folder, and end it by a signal."""
    process = subprocess.Popen([sys.executable, *command], cwd=folder, env=os.environ | environment)
    try:
        yield process
        process.send_signal(stop)
        process.wait(LONG)
    finally:
        process.kill()
        process.wait()


def ask(port, path="/stream", **form):
    method = "POST" if form else "GET"
    return httpx.request(method, f"http://127.0.0.1:{port}{path}", data=form, timeout=LONG)


def ask_asgi(app, method, path, **request):
    """Ask an ASGI application without a server."""

    async def ask():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await asyncio.wait_for(client.request(method, path, **request), LONG)

    return asyncio.run(ask())


def answers(port, path="/stream"):
    """Whether the service answers by now."""
    try:
        return ask(port, path, s="[MASK]").status_code == 200
    except httpx.TransportError:
        return False
