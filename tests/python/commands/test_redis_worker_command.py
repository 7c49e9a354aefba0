"""`python -m service_streamer redis-worker`."""

import signal

import pytest
from process_models import ProcessGate, is_alive
from waits import eventually

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER

pytest_plugins = ["redis_fixtures", "commands"]
pytestmark = NEEDS_SERVER


@pytest.fixture
def command(services, server, prefix):
    def start(*arguments):
        return services("redis-worker", *arguments, "--broker", server.url, "--prefix", prefix)

    return start


def test_the_command_serves(command, raw_clients, tmp_path):
    (tmp_path / "secret").write_text("right\n")
    service = command(
        *("process_models:Model", "--workers", "2", "--devices", "0", "1"),
        *("--model-init-args", '["weights"]', "--model-init-kwargs", '{"size": 5}'),
        *("--secret-file", str(tmp_path / "secret"), "--batch-size", "16"),
    )
    service.line("answers the queue")
    (seen,) = raw_clients(secret="right").ask(["item"])
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
    service.signal(number)
    service.line("is stopping")
    gate.open()
    assert service.wait() == 0
    assert client.results(futures[:2]) == [[0], [2]]
    assert (client.length(), client.pending(), client.consumers()) == (3, 0, [])
    assert not is_alive(worker)
    gate.close()


def test_a_secret_file_that_is_missing_is_named(command):
    service = command("process_models:double", "--secret-file", "/none")
    service.line("/none")
    assert service.wait() == 1
