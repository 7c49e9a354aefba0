"""`python -m service_streamer redis-worker`."""

import signal
import subprocess
import sys

import pytest
from process_models import ProcessGate, is_alive
from scripts import SUPPORT
from waits import LONG, eventually

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER

pytest_plugins = ["redis_fixtures"]
pytestmark = NEEDS_SERVER

COMMAND = [sys.executable, "-m", "service_streamer", "redis-worker"]


class Service:
    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], cwd=SUPPORT, stderr=subprocess.PIPE, text=True
        )

    def line(self, what):
        for line in self.process.stderr:
            if what in line:
                return line
        raise AssertionError(f"it ended without {what!r}")


@pytest.fixture
def command(server, prefix):
    made = []

    def start(*arguments):
        made.append(Service(*arguments, "--broker", server.url, "--prefix", prefix))
        return made[-1]

    yield start
    for service in made:
        service.process.kill()
        service.process.communicate()


def test_the_command_serves(command, clients, tmp_path):
    (tmp_path / "secret").write_text("right\n")
    service = command(
        *("process_models:Model", "--workers", "2", "--devices", "0", "1"),
        *("--model-init-args", '["weights"]', "--model-init-kwargs", '{"size": 5}'),
        *("--secret-file", str(tmp_path / "secret"), "--batch-size", "16"),
    )
    service.line("answers the queue")
    (seen,) = clients(secret="right").ask(["item"])
    assert (seen["args"], seen["kwargs"]) == (("weights",), {"size": 5})
    assert seen["device"] in "01"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_what_is_here_and_leaves_the_group(command, client, tmp_path, number):
    gate = ProcessGate(tmp_path)
    service = command(
        *("process_models:PathGate", "--batch-size", "1"),
        *("--model-init-args", f'["{tmp_path}"]'),
    )
    futures = client.send(*[[i] for i in range(5)])
    worker = gate.wait_entered()
    eventually(lambda: client.pending() == 2)
    service.process.send_signal(number)
    service.line("is stopping")
    gate.open()
    assert service.process.wait(LONG) == 0
    assert client.results(futures[:2]) == [[0], [2]]
    assert (client.length(), client.pending(), client.consumers()) == (3, 0, [])
    assert not is_alive(worker)
    gate.close()


def test_a_second_signal_ends_it_at_once(command, client, tmp_path):
    gate = ProcessGate(tmp_path)
    service = command("process_models:PathGate", "--model-init-args", f'["{tmp_path}"]')
    client.send([1])
    worker = gate.wait_entered()
    service.process.send_signal(signal.SIGTERM)
    service.line("is stopping")
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(LONG) == -signal.SIGTERM
    eventually(lambda: not is_alive(worker))
    assert client.pending() == 1
    gate.close()


def test_a_signal_while_it_loads_ends_it(command, tmp_path):
    gate = ProcessGate(tmp_path)
    service = command(
        *("process_models:PathGate", "--warmup", '["load"]'),
        *("--model-init-args", f'["{tmp_path}"]'),
    )
    worker = gate.wait_entered()
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(LONG) == 0
    assert not is_alive(worker)
    gate.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["process_models"], "module:attribute"),
        (["process_models:double", "--worker-num", "0"], "worker_num must be"),
        (["process_models:double", "--secret-file", "/none"], "/none"),
        (["process_models:BadInit", "--model-init-args", '["raise"]'], "no weights here"),
    ],
)
def test_what_is_wrong_is_said_and_it_ends(command, arguments, message):
    service = command(*arguments)
    _, errors = service.process.communicate(timeout=100)  # two interpreters start
    assert service.process.returncode == 1
    assert message in errors


def test_help_has_an_example():
    done = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0
    assert "RedisStreamer(" in done.stdout
