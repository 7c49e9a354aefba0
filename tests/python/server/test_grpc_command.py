"""``python -m service_streamer serve FOLDER --grpc``."""

import queue
import re
import signal

import numpy as np
import pytest
from hub_models import Folder
from process_models import ProcessGate, is_alive
from waits import LONG

triton = pytest.importorskip("tritonclient.grpc")
pytest.importorskip("uvicorn")

pytest_plugins = ["commands", "grpc_fixtures"]
pytestmark = pytest.mark.slow


@pytest.fixture
def open_gate(tmp_path):
    gate = ProcessGate(tmp_path)
    yield gate
    gate.close()


@pytest.fixture
def begun(services, triton_clients, open_gate, tmp_path):
    """Starts a server whose worker process has begun a batch. Also gives the client's answer."""

    def start(*arguments):
        folder = Folder(tmp_path)
        folder.configure(model="hub_models:Gated", more=f'model_init_args = ["{tmp_path}"]')
        folder.add(3)
        place = ("--grpc", "127.0.0.1:0", *arguments)
        service = services("serve", str(folder.root / "models"), *place)
        address = re.search(r"is served at grpc://(\S+)", service.line("grpc://"))[1]
        client = triton_clients(address)
        given = triton.InferInput("x", [1], "INT64")
        given.set_data_from_numpy(np.array([2]))
        answers = queue.Queue()
        client.async_infer("times", [given], lambda result, error: answers.put((result, error)))
        return service, open_gate.wait_entered(), lambda: answers.get(timeout=LONG)

    return start


def test_a_signal_answers_the_calls_that_were_accepted(begun, open_gate):
    service, worker, answer = begun()
    service.signal(signal.SIGTERM)
    service.line("stopping")
    open_gate.open()
    assert service.wait() == 0
    assert not is_alive(worker)
    result, error = answer()
    assert (error, result.as_numpy("output").tolist()) == (None, [4])


def test_the_drain_timeout_ends_calls_with_unavailable(begun):
    service, _, answer = begun("--drain-timeout", "0")
    service.signal(signal.SIGTERM)
    assert service.wait() == 0
    result, error = answer()
    assert (result, error.status()) == (None, "StatusCode.UNAVAILABLE")
