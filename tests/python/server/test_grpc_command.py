"""``python -m service_streamer serve FOLDER --grpc``."""

import queue
import re
import signal
import threading

import httpx
import numpy as np
import pytest
from hub_models import Folder
from process_models import ProcessGate, is_alive
from waits import LONG, eventually

grpc = pytest.importorskip("grpc")
triton = pytest.importorskip("tritonclient.grpc")
protocol = pytest.importorskip("tritonclient.grpc.service_pb2")
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
        place = ("--grpc", "127.0.0.1:0", "--monitor", "127.0.0.1:0", *arguments)
        service = services("serve", str(folder.root / "models"), *place)
        service.page = re.search(r"http://\S+", service.line("the web interface is at"))[0]
        assert httpx.get(f"{service.page}ready", timeout=LONG).status_code == 200
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
    assert httpx.get(f"{service.page}ready", timeout=LONG).status_code == 503
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


def test_a_signal_under_load_ends_calls_with_unavailable_only(services, tmp_path):
    folder = Folder(tmp_path)
    folder.add(3)
    service = services("serve", str(folder.root / "models"), "--grpc", "127.0.0.1:0")
    address = re.search(r"is served at grpc://(\S+)", service.line("grpc://"))[1]
    request = protocol.ModelInferRequest(model_name="times")
    request.inputs.add(name="x", datatype="INT64", shape=[1], contents={"int64_contents": [2]})
    told, errors, ended = [], [], threading.Event()

    def ask():  # goes on after an error, as a client without patience
        options = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own
        with grpc.insecure_channel(address, options) as channel:
            infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            while not ended.is_set():
                try:
                    told.append(infer(request.SerializeToString(), timeout=LONG))
                except grpc.RpcError as error:
                    errors.append((error.code(), error.details()))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for each in threads:
        each.start()
    eventually(lambda: len(told) > 200)
    service.signal(signal.SIGTERM)
    assert service.wait() == 0
    ended.set()
    for each in threads:
        each.join(LONG)
    answers = map(protocol.ModelInferResponse.FromString, set(told))
    assert {each.raw_output_contents[0] for each in answers} == {np.int64(6).tobytes()}
    assert {each for each in errors if each[0] is not grpc.StatusCode.UNAVAILABLE} == set()
    assert "the server stops" in {details for _, details in errors}
