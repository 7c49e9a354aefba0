"""``python -m service_streamer serve``: a Streamer of its own for clients that connect."""

import os
import signal
import subprocess
import sys

import pytest
from process_models import ProcessGate, is_alive
from scripts import SUPPORT
from waits import LONG, eventually

from service_streamer import Streamer, StreamerClosed, WorkerLost

pytestmark = pytest.mark.slow

SERVE = [sys.executable, "-m", "service_streamer", "serve"]


class Service:
    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [*SERVE, *arguments], cwd=SUPPORT, stderr=subprocess.PIPE, text=True
        )

    def line(self):
        return self.process.stderr.readline()

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self):
        return self.process.wait(LONG)


@pytest.fixture
def serve():
    made = []

    def start(*arguments):
        made.append(Service(*arguments))
        return made[-1]

    yield start
    for service in made:
        service.process.kill()
        service.process.communicate()


@pytest.fixture
def address(tmp_path):
    return str(tmp_path / "socket")


def test_clients_connect_to_what_is_served(serve, address):
    service = serve(
        *("process_models:Model", "--address", address, "--worker-num", "2"),
        *("--cuda-devices", "0", "1", "--model-init-args", '["weights"]'),
        *("--model-init-kwargs", '{"size": 5}', "--batch-size", "16", "--policy", "greedy"),
    )
    assert f"process_models:Model is served at {address}" in service.line()
    with Streamer.connect(address) as client:
        (seen,) = client.predict(["item"])
        assert (seen["args"], seen["kwargs"]) == (("weights",), {"size": 5})
        stats = client.stats()
        assert (stats.batch_size, stats.policy) == (16, "greedy")
        assert sorted(worker.device for worker in stats.worker_processes) == ["0", "1"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_what_was_accepted(serve, address, tmp_path, number):
    gate = ProcessGate(tmp_path)
    service = serve(
        *("process_models:PathGate", "--address", address, "--batch-size", "1"),
        *("--model-init-args", f'["{tmp_path}"]'),
    )
    assert "is served" in service.line()
    with Streamer.connect(address) as client:
        futures = [client.submit([i]) for i in range(3)]
        worker = gate.wait_entered()
        eventually(lambda: client.stats().queued_requests == 2)
        service.signal(number)
        assert "stopping" in service.line()
        gate.open()
        assert [future.result(LONG) for future in futures] == [[0], [2], [4]]
        assert service.wait() == 0
        assert not is_alive(worker)
        assert not os.path.exists(address)
    gate.close()


def test_what_comes_while_it_drains_waits_for_the_next_one(serve, address, tmp_path):
    gate = ProcessGate(tmp_path)
    arguments = (
        *("process_models:PathGate", "--address", address, "--batch-size", "1"),
        *("--model-init-args", f'["{tmp_path}"]'),
    )
    first = serve(*arguments)
    assert "is served" in first.line()
    with Streamer.connect(address) as client:
        futures = [client.submit([0])]
        gate.wait_entered()
        first.signal(signal.SIGTERM)
        assert "ends when" in first.line()

        def not_taken():
            before = client.stats().submitted
            futures.append(client.submit([len(futures)]))
            return client.stats().submitted == before

        eventually(not_taken)
        gate.open()
        assert first.wait() == 0
        assert "is served" in serve(*arguments).line()
        assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(len(futures))]
    gate.close()


def test_a_second_signal_ends_it_at_once(serve, address, tmp_path):
    gate = ProcessGate(tmp_path)
    service = serve(
        *("process_models:PathGate", "--address", address),
        *("--model-init-args", f'["{tmp_path}"]'),
    )
    assert "is served" in service.line()
    with Streamer.connect(address) as client:
        future = client.submit([1])
        worker = gate.wait_entered()
        service.signal(signal.SIGTERM)
        assert "stopping" in service.line()
        service.signal(signal.SIGTERM)
        assert service.wait() == -signal.SIGTERM
        assert isinstance(future.exception(LONG), WorkerLost | StreamerClosed)
        eventually(lambda: not is_alive(worker))
        client.close(drain=False)
    gate.close()


def test_a_signal_while_it_loads_ends_it(serve, address, tmp_path):
    gate = ProcessGate(tmp_path)
    service = serve(
        *("process_models:PathGate", "--address", address, "--warmup", '["load"]'),
        *("--model-init-args", f'["{tmp_path}"]'),
    )
    worker = gate.wait_entered()
    service.signal(signal.SIGTERM)
    assert service.wait() == 0
    assert not is_alive(worker)
    gate.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["process_models"], "module:attribute"),
        (["no_such_module:Model"], "No module named 'no_such_module'"),
        (["process_models:NoSuchModel"], "NoSuchModel"),
        (["process_models:LONG"], "must be callable"),
        (["process_models:double", "--worker-num", "0"], "worker_num must be"),
        (["process_models:double", "--mp-start-method", "thread"], "mp_start_method must be"),
        (["process_models:double", "--cuda-devices", "one"], "cuda_devices must hold"),
        (["process_models:BadInit", "--model-init-args", '["raise"]'], "no weights here"),
    ],
)
def test_what_is_wrong_is_said_and_it_ends(serve, address, arguments, message):
    service = serve(*arguments, "--address", address)
    _, errors = service.process.communicate(timeout=100)  # two interpreters start
    assert service.process.returncode == 1
    assert message in errors
    assert not os.path.exists(address)


def test_help_has_an_example():
    done = subprocess.run([*SERVE, "--help"], capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0
    assert "Streamer.connect(" in done.stdout
