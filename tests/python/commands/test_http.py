"""`--http` of the commands `serve` and `redis-worker`."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from urllib.parse import urlsplit

import httpx
import pytest
from descriptors import open_files
from process_models import ProcessGate
from scripts import SUPPORT
from told import told
from waits import LONG, eventually

from service_streamer import Streamer

pytest_plugins = ["commands"]
pytestmark = pytest.mark.slow

WITHOUT = """
import sys
sys.modules[{missing!r}] = None
from service_streamer._commands.main import main
sys.exit(main(["serve", "process_models:double", "--address", "@a", "--http", "127.0.0.1:0"]))
"""


@pytest.fixture
def web():
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")


def get(url):
    with urllib.request.urlopen(url, timeout=LONG) as reply:
        return reply.read()


def url_in(line):
    return line[line.index("http://") :].strip()


@pytest.mark.usefixtures("web")
def test_probes_are_answered_until_the_last_request_is(serve, address, tmp_path):
    gate = ProcessGate(tmp_path)
    service = serve(
        *("process_models:PathGate", "--model-init-args", f'["{tmp_path}"]'),
        *("--http", "127.0.0.1:0"),
    )
    url = url_in(service.line("the web interface is at"))
    service.line("is served")
    with Streamer.connect(address) as client:
        future = client.submit([1])
        gate.wait_entered()
        service.signal(signal.SIGTERM)
        service.line("stopping")
        eventually(lambda: httpx.get(url + "ready", timeout=LONG).status_code == 503)
        assert "the streamer is closing" in httpx.get(url + "ready", timeout=LONG).text
        assert httpx.get(url + "live", timeout=LONG).status_code == 200
        gate.open()
        assert future.result(LONG) == [2]
        assert service.wait() == 0
    gate.close()


@pytest.mark.usefixtures("web")
def test_a_forked_worker_does_not_keep_the_port(serve, address):
    service = serve(
        *("process_models:double", "--mp-start-method", "fork", "--http", "127.0.0.1:0")
    )
    port = urlsplit(url_in(service.line("the web interface is at"))).port
    service.line("is served")
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table]
    (inode,) = [row[9] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "0A"]
    with Streamer.connect(address) as client:
        (worker,) = client.stats().worker_processes
    assert f"socket:[{inode}]" in open_files(service.process.pid)
    assert f"socket:[{inode}]" not in open_files(worker.pid)


@pytest.mark.over_redis
@pytest.mark.usefixtures("web")
def test_a_redis_worker_shows_itself(services, shared_redis_server):
    service = services(
        *("redis-worker", "process_models:double", "--broker", shared_redis_server.url),
        *("--prefix", "http", "--http", "127.0.0.1:0", "--log-format", "json"),
    )
    url = url_in(json.loads(service.line("the web interface is at"))["message"])
    service.line("answers the queue")
    eventually(lambda: get(url + "ready"))
    assert b"completed" in get(url + "stats")
    service.signal(signal.SIGTERM)
    assert service.wait() == 0


@pytest.mark.usefixtures("web")
def test_a_port_in_use_is_one_line(serve):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        service = serve("process_models:double", "--http", place)
        _, errors = service.process.communicate(timeout=100)
    assert service.process.returncode == 2
    (line,) = errors.splitlines()
    assert f"cannot listen at {place}: Address already in use" in line


@pytest.mark.parametrize("missing", ["uvicorn", "starlette"])
def test_a_missing_library_is_named_with_its_extra(missing):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(missing=missing)],
        cwd=SUPPORT,
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert done.returncode == 2
    command = "pip install 'service-streamer-ng[web]' uvicorn"
    text = f"--http: the package {missing} is missing: {command}"
    assert done.stderr.endswith(told(text, "a-package-is-missing") + "\n")
