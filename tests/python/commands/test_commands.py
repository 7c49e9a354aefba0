"""The commands `serve` and `redis-worker`: signals, wrong arguments, help."""

import ctypes
import os
import re
import signal
from pathlib import Path

import pytest
from command_processes import call_each
from process_models import ProcessGate, is_alive
from waits import LONG, eventually

from service_streamer import Streamer, StreamerClosed, WorkerLost
from service_streamer._processes import client

pytest_plugins = ["commands"]
pytestmark = pytest.mark.slow


@pytest.fixture(params=["serve", pytest.param("redis-worker", marks=pytest.mark.over_redis)])
def kind(request):
    return request.param


@pytest.fixture
def place(request, kind, address, monkeypatch):
    """Options for where it serves, and a function that makes clients."""
    if kind == "serve":
        monkeypatch.setattr(client, "FIRST_PATIENCE", LONG)  # a busy machine starts Python slowly
        return ["--address", address], lambda: Streamer.connect(address)
    from redis_tools import new_prefix

    from service_streamer import RedisStreamer

    url, prefix = request.getfixturevalue("shared_redis_server").url, new_prefix()
    return ["--broker", url, "--prefix", prefix], lambda: RedisStreamer(url, prefix)


@pytest.fixture
def start(services, kind, place):
    return lambda *arguments: services(kind, *arguments, *place[0])


def test_a_second_signal_ends_it_at_once(start, place, tmp_path):
    gate = ProcessGate(tmp_path)
    service = start("process_models:PathGate", "--model-init-args", f'["{tmp_path}"]')
    streamer = place[1]()
    future = streamer.submit([1])
    worker = gate.wait_entered()
    service.signal(signal.SIGTERM)
    service.line("stopping")
    service.signal(signal.SIGTERM)
    assert service.wait() == -signal.SIGTERM
    eventually(lambda: not is_alive(worker))
    if isinstance(streamer, Streamer):
        assert isinstance(future.exception(LONG), WorkerLost | StreamerClosed)
    else:  # it is for another worker
        assert streamer.stats().stream.pending == 1
    streamer.close(drain=False)
    gate.close()


def test_a_signal_that_another_thread_has_got_ends_it(start, kind):
    service = start("process_models:double")
    service.line("is served" if kind == "serve" else "is ready")
    pid = service.process.pid
    eventually(lambda: "State:\tS" in status_of(pid, pid))
    threads = [int(each) for each in os.listdir(f"/proc/{pid}/task")]
    other = next(each for each in threads if each != pid and takes(signal.SIGTERM, pid, each))
    ctypes.CDLL(None).tgkill(pid, other, signal.SIGTERM)
    assert service.wait() == 0


def status_of(pid, thread):
    return Path(f"/proc/{pid}/task/{thread}/status").read_text()


def takes(number, pid, thread):
    """Whether the thread does not block the signal."""
    blocked = int(re.search(r"SigBlk:\s*(\w+)", status_of(pid, thread))[1], 16)
    return not blocked >> (number - 1) & 1


def test_a_signal_while_it_loads_ends_it(start, tmp_path):
    gate = ProcessGate(tmp_path)
    service = start(
        *("process_models:PathGate", "--warmup", '["load"]'),
        *("--model-init-args", f'["{tmp_path}"]'),
    )
    worker = gate.wait_entered()
    service.signal(signal.SIGTERM)
    assert service.wait() == 0
    assert not is_alive(worker)
    gate.close()


def test_an_onnx_file_is_a_model(start, place, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    import onnx_models

    service = start(str(onnx_models.identity(tmp_path / "model.onnx")))
    service.line("is served" if place[0][0] == "--address" else "is ready")
    with place[1]() as streamer:
        assert streamer.predict([1.5], timeout=LONG) == [1.5]


WRONG = [
    (["process_models"], "module:attribute"),
    (["none.onnx"], "none.onnx does not exist"),
    (["no_such_module:Model"], "No module named 'no_such_module'"),
    (["process_models:NoSuchModel"], "NoSuchModel"),
    (["process_models:LONG"], "must be callable"),
    (["process_models:double", "--worker-num", "0"], "worker_num must be"),
    (["process_models:double", "--mp-start-method", "thread"], "mp_start_method must be"),
    (["process_models:double", "--cuda-devices", "one"], "cuda_devices must hold"),
    (["process_models:double", "--drain-timeout", "-1"], "must be at least 0 seconds, not -1"),
]


def test_a_wrong_call_ends_with_a_message(kind, place, address):
    calls = call_each(*([kind, *arguments, *place[0]] for arguments, _ in WRONG))
    for (_, message), (code, text) in zip(WRONG, calls, strict=True):
        assert message in text
        assert code == 2, text
    assert not os.path.exists(address)


def test_a_model_that_cannot_be_loaded_ends_with_its_error(start, address):
    service = start("process_models:BadInit", "--model-init-args", '["raise"]')
    _, errors = service.process.communicate(timeout=100)  # two interpreters start
    assert service.process.returncode == 1
    assert "no weights here" in errors
    assert not os.path.exists(address)
