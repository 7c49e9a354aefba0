"""The examples with several processes: they run, and their web processes share the model."""

import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from process_models import is_alive
from tasks import children
from waits import eventually

FOLDER = Path(__file__).parents[3] / "examples" / "text_infilling"
LONG = 60  # seconds: longer than anything here takes; reached only by a failure

TUTORIAL = {
    "twinkle twinkle [MASK] star.": "little",
    "Happy birthday to [MASK].": "you",
    "the answer to life, the [MASK], and everything.": "universe",
}


@contextmanager
def running(*command, stop=signal.SIGTERM, **environment):
    process = subprocess.Popen([sys.executable, *command], cwd=FOLDER, env=os.environ | environment)
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


def answers(port):
    """Whether the web server answers by now."""
    try:
        return ask(port, s="[MASK]").status_code == 200
    except httpx.TransportError:
        return False


def ask_at_once(port, clients=24):
    """Many connections at a time, so that every web process gets some; the number of requests."""
    sentences = list(TUTORIAL) * (clients // 3)
    with ThreadPoolExecutor(clients) as pool:
        for sentence, response in zip(
            sentences, pool.map(lambda s: ask(port, s=s), sentences), strict=True
        ):
            assert response.json() == [TUTORIAL[sentence]]
    return len(sentences)


def requests_so_far(port):
    return int(re.search(r"(\d+) requests? so far", ask(port, "/explain").text)[1])


def workers_in(text):
    return [int(pid) for pid in re.findall(r"^  pid (\d+)", text, re.MULTILINE)]


def check_sharing(port):
    eventually(lambda: answers(port), LONG)
    before = requests_so_far(port)
    count = ask_at_once(port)
    # whichever web process is asked, it tells of the requests of all
    assert {requests_so_far(port) for _ in range(8)} == {before + count}
    refused = ask(port, s="no gap here")
    assert (refused.status_code, "no [MASK]" in refused.json()["error"]) == (400, True)
    return workers_in(ask(port, "/explain").text)


def test_web_processes_of_gunicorn_share_one_set_of_workers(port):
    command = ["-m", "gunicorn", "-c", "gunicorn_shared_conf.py", "--bind", f"127.0.0.1:{port}"]
    with running(*command, "shared_flask_app:app", WEB_WORKERS="3") as server:
        (worker,) = check_sharing(port)
        eventually(lambda: len(children(server.pid)) >= 3)
    assert server.returncode == 0
    eventually(lambda: not is_alive(worker))


@pytest.mark.parametrize("recycled", [False, True])
def test_web_processes_of_uvicorn_connect_to_a_model_of_its_own(port, tmp_path, recycled):
    address = str(tmp_path / "model")
    serve = ["-m", "service_streamer", "serve", "model:ManagedBertModel", "--address", address]
    web = ["-m", "uvicorn", "--workers", "2", "--port", str(port), "shared_fastapi_app:app"]
    web += ["--timeout-worker-healthcheck", str(LONG)]  # who does not answer for 5 s is killed
    with running(*serve) as service:
        with running(*web, MODEL_ADDRESS=address):
            (worker,) = check_sharing(port)
        if recycled:  # the model has stayed
            with running(*web, MODEL_ADDRESS=address):
                assert check_sharing(port) == [worker]
    assert service.returncode == 0
    eventually(lambda: not is_alive(worker))


def test_a_worker_on_each_gpu_and_greenlets(port):
    pytest.importorskip("gevent")
    with running("multi_gpu_flask_app.py", PORT=str(port), CUDA_DEVICES="0,1,2") as server:
        eventually(lambda: answers(port), LONG)
        ask_at_once(port)
        text = ask(port, "/explain").text
        devices = re.findall(r"^  pid \d+ +ready +(\d+)", text, re.MULTILINE)
        assert sorted(devices) == ["0", "1", "2"]
        workers = workers_in(text)
    assert server.returncode == -signal.SIGTERM
    eventually(lambda: not any(map(is_alive, workers)))
