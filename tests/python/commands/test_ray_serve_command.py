"""`python -m service_streamer ray-serve`."""

import signal

import pytest
from process_models import ProcessGate
from waits import LONG

pytest.importorskip("ray")

from service_streamer import RayStreamer, StreamerClosed
from service_streamer._commands.main import _parser

pytest_plugins = ["commands"]
pytestmark = pytest.mark.over_ray


@pytest.fixture
def command(services, ray_address):
    return lambda *arguments: services("ray-serve", *arguments, "--address", ray_address)


def parsed(*arguments):
    return vars(_parser().parse_args(["ray-serve", "models:Model", "--name", "m", *arguments]))


def test_replicas_are_a_number_or_a_range():
    assert parsed("--replicas", "3")["replicas"] == 3
    assert parsed("--replicas", "1-8")["replicas"] == (1, 8)
    assert "replicas" not in parsed()


@pytest.mark.parametrize("text", ["", "1-", "-8", "1-8-9", "many", "1.5"])
def test_replicas_that_are_neither_are_named(text, capsys):
    with pytest.raises(SystemExit):
        parsed(f"--replicas={text}")
    assert f"such as 2 or 1-8, not {text!r}" in capsys.readouterr().err


def test_it_serves_its_name_until_a_signal_and_then_drains(command, ray_address, tmp_path):
    gate = ProcessGate(tmp_path)
    (tmp_path / "tuned.toml").write_text("[options]\nbatch_size = 1\n")
    service = command(
        *("process_models:PathGate", "--name", "gated", "--replicas", "1-2"),
        *("--options", str(tmp_path / "tuned.toml")),
        *("--model-init-args", f'["{tmp_path}"]', "--num-cpus", "0"),
    )
    service.line("process_models:PathGate is served as 'gated'")
    with RayStreamer.connect("gated", ray_address=ray_address) as client:
        assert client.stats().batch_size == 1
        future = client.submit([7])
        gate.wait_entered()
        service.signal(signal.SIGTERM)
        service.line("stopping")
        gate.open()
        assert future.result(LONG) == [14]
        assert service.wait() == 0
        with pytest.raises(StreamerClosed):
            client.predict([8])
    gate.close()
