"""uwsgi: the application is loaded by its master, and used in the processes that it forks.

Python knows of these forks only with ``--py-call-uwsgi-fork-hooks``.
"""

import contextlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from process_models import is_alive
from waits import LONG, eventually

pytestmark = pytest.mark.slow

MODEL = """
import os

def predict(batch):
    return [[os.getpid(), 2 * item] for item in batch]
"""

APP = """
import json, os
from model import predict
from service_streamer import Streamer, ThreadedStreamer

threaded = ThreadedStreamer(predict, 8)
shared = Streamer(predict, 8)

def application(environ, start_response):
    item = int(environ["QUERY_STRING"])
    start_response("200 OK", [])
    outputs = [streamer.predict([item])[0] for streamer in (threaded, shared)]
    return [json.dumps([os.getpid(), *outputs]).encode()]
"""


@pytest.fixture
def uwsgi():
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    found = shutil.which("uwsgi", path=path)
    if found is None:
        pytest.skip("no uwsgi")
    told = subprocess.run([found, "--python-version"], capture_output=True, text=True, check=False)
    if told.stdout.strip() != platform.python_version():
        pytest.skip(f"a uwsgi of another Python: {told.stdout or told.stderr}")
    return found


@pytest.fixture
def serve(uwsgi, tmp_path):
    """Run an application in two processes; what they log is there when the block has ended."""

    @contextlib.contextmanager
    def serve(*options):
        (tmp_path / "model.py").write_text(MODEL)
        (tmp_path / "app.py").write_text(APP)
        socket = tmp_path / "socket"
        command = [uwsgi, "--master", "--processes=2", "--module=app", "--need-app"]
        command += ["--die-on-term", "--enable-threads", f"--http-socket={socket}", *options]
        command += [f"--virtualenv={sys.prefix}", f"--pythonpath={tmp_path}"]
        log = tmp_path / "log"
        with open(log, "wb") as output:
            server = subprocess.Popen(command, stdout=output, stderr=output, cwd=tmp_path)
        try:
            eventually(lambda: socket.exists() or server.poll() is not None)
            assert server.poll() is None, log.read_text()
            transport = httpx.HTTPTransport(uds=str(socket))
            with httpx.Client(transport=transport, timeout=LONG) as client:
                yield client, log
        finally:
            server.send_signal(signal.SIGTERM)
            code = server.wait(LONG)
        assert code == 0, log.read_text()

    return serve


def test_processes_forked_by_the_master_share_its_workers(serve):
    with serve("--py-call-uwsgi-fork-hooks") as (client, log):
        seen = ask_until_both_answer(client)
    assert all(threaded == web for web, threaded, _ in seen)
    workers = {shared for _, _, shared in seen}
    assert len(workers) == 1, "they do not share one worker"
    assert not workers & {web for web, _, _ in seen}
    eventually(lambda: not any(map(is_alive, workers)))
    assert not re.search("Traceback|Exception ignored", log.read_text()), log.read_text()


def test_without_the_fork_hooks_requests_are_refused_and_the_end_is_silent(serve):
    with serve() as (client, log):
        with contextlib.suppress(httpx.RemoteProtocolError):  # it raised
            client.get("http://app/?1")
        eventually(lambda: "StreamerClosed" in log.read_text())
        told = len(log.read_text())
    end = log.read_text()[told:]
    assert not re.search("Error|Traceback|Exception ignored", end), end


def ask_until_both_answer(client):
    """Return which web process, thread's and worker's process answered."""
    seen = set()

    def ask(item):
        web, (threaded, first), (shared, second) = client.get(f"http://app/?{item}").json()
        assert (first, second) == (2 * item, 2 * item)
        seen.add((web, threaded, shared))

    def both():
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(ask, range(16)))
        return len({web for web, _, _ in seen}) == 2

    eventually(both)
    return seen
