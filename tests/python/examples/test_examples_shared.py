"""The examples with several processes: they run, and their web processes share the model."""

import functools
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import web_services
from process_models import is_alive
from tasks import children
from waits import eventually
from web_services import LONG, TUTORIAL, answers, ask

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[3] / "examples" / "text_infilling"
running = functools.partial(web_services.running, FOLDER)


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
    # each web process has the statistics of the requests of all
    assert {requests_so_far(port) for _ in range(8)} == {before + count}
    refused = ask(port, s="no gap here")
    assert (refused.status_code, "no [MASK]" in refused.json()["error"]) == (400, True)
    assert ask(port, "/streamer/ready").status_code == 200
    return workers_in(ask(port, "/explain").text)


def test_web_processes_of_gunicorn_share_one_set_of_workers(port):
    command = ["-m", "gunicorn", "-c", "gunicorn_shared_conf.py", "--bind", f"127.0.0.1:{port}"]
    with running(*command, "shared_flask_app:app", WEB_WORKERS="3") as server:
        (worker,) = check_sharing(port)
        eventually(lambda: len(children(server.pid)) >= 3)
    assert server.returncode == 0
    eventually(lambda: not is_alive(worker))


def test_web_processes_of_uvicorn_connect_to_a_model_of_its_own(port, tmp_path):
    address = str(tmp_path / "model")
    serve = ["-m", "service_streamer", "serve", "model:ManagedBertModel", "--address", address]
    web = ["-m", "uvicorn", "--workers", "2", "--port", str(port), "shared_fastapi_app:app"]
    web += ["--timeout-worker-healthcheck", str(LONG)]  # the default kills a worker after 5 s
    with running(*serve) as service:
        with running(*web, MODEL_ADDRESS=address):
            (worker,) = check_sharing(port)
        with running(*web, MODEL_ADDRESS=address):  # the model has stayed
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
