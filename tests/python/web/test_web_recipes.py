"""The recipes of docs/guide/monitoring work as printed, with another port."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from thread_models import double
from waits import LONG

from service_streamer import ThreadedStreamer, web

yaml = pytest.importorskip("yaml")

pytest_plugins = ["web_fixtures"]

FOLDER = Path(__file__).parents[3] / "docs/guide/monitoring"
PAGES = "\n".join((FOLDER / name).read_text() for name in ("live-page.md", "health.md"))


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGES, re.MULTILINE | re.DOTALL)


@pytest.fixture
def streamer():
    with ThreadedStreamer(double, 8) as streamer:
        yield streamer


@pytest.fixture
def server(web_servers, streamer):
    """An application with the line of the page that mounts the routes, with control."""
    (line,) = [line for block in blocks("python") for line in block.splitlines() if "token" in line]
    names = {"app": Starlette(), "streamer": streamer, "web": web}
    exec(line, names)
    return web_servers(names["app"])


def test_kubernetes(server):
    (text,) = [block for block in blocks("yaml") if "httpGet" in block]
    probes = yaml.safe_load(text)
    assert set(probes) == {"livenessProbe", "readinessProbe", "startupProbe"}
    for probe in probes.values():
        answer = httpx.get(server.url + probe["httpGet"]["path"], timeout=LONG)
        assert answer.status_code == 200


def test_docker(server, streamer):
    (text,) = [block for block in blocks("yaml") if "healthcheck" in block]
    (_, python, option, code) = yaml.safe_load(text)["healthcheck"]["test"]
    assert python == "python"
    command = [sys.executable, option, code.replace("localhost:5005", f"127.0.0.1:{server.port}")]
    assert subprocess.run(command, timeout=LONG).returncode == 0
    streamer.close()
    assert subprocess.run(command, timeout=LONG, stderr=-3).returncode != 0


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_a_change(server, streamer):
    (text,) = [block for block in blocks("sh") if "curl" in block]
    command = text.replace("localhost:5005", f"127.0.0.1:{server.port}")
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=LONG)
    assert done.stdout == '{"changed": {"batch_size": 32}}\n'
    assert streamer.stats().batch_size == 32
