"""``python -m service_streamer serve``: a Streamer of its own for clients that connect."""

import os
import signal

import pytest
from process_models import ProcessGate, is_alive
from waits import LONG, eventually

from service_streamer import Streamer

pytest_plugins = ["commands"]
pytestmark = pytest.mark.slow


def test_clients_connect_to_what_is_served(serve, address):
    service = serve(
        *("process_models:Model", "--worker-num", "2"),
        *("--cuda-devices", "0", "1", "--model-init-args", '["weights"]'),
        *("--model-init-kwargs", '{"size": 5}', "--batch-size", "16", "--policy", "greedy"),
        *("--tenants", '{"acme": 3, "*": 1}', "--max-queue-per-tenant", "7"),
    )
    service.line(f"process_models:Model is served at {address}")
    with Streamer.connect(address) as client:
        (seen,) = client.predict(["item"])
        assert (seen["args"], seen["kwargs"]) == (("weights",), {"size": 5})
        stats = client.stats()
        assert (stats.batch_size, stats.policy) == (16, "greedy")
        assert (set(stats.tenant_stats), stats.max_queue_per_tenant) == ({"acme", "*"}, 7)
        assert sorted(worker.device for worker in stats.worker_processes) == ["0", "1"]


def test_options_may_be_in_a_file_and_flags_win(serve, address, tmp_path):
    file = tmp_path / "tuned.toml"
    file.write_text("[options]\nbatch_size = 16\npolicy = 'greedy'\nmp_start_method = 'fork'\n")
    cpu = str(min(os.sched_getaffinity(0)))
    service = serve(
        *("process_models:Model", "--options", str(file), "--policy", "window"),
        *("--affinity", cpu, "--threads-per-worker", "3"),
    )
    service.line("is served")
    with Streamer.connect(address) as client:
        stats = client.stats()
    assert (stats.batch_size, stats.policy) == (16, "window")
    assert [(each.cpus, each.threads) for each in stats.worker_processes] == [(cpu, "3")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_what_was_accepted(serve, address, tmp_path, number):
    gate = ProcessGate(tmp_path)
    service = serve(
        *("process_models:PathGate", "--batch-size", "1"),
        *("--model-init-args", f'["{tmp_path}"]'),
    )
    service.line("is served")
    with Streamer.connect(address) as client:
        futures = [client.submit([i]) for i in range(3)]
        worker = gate.wait_entered()
        eventually(lambda: client.stats().queued_requests == 2)
        service.signal(number)
        service.line("stopping")
        gate.open()
        assert [future.result(LONG) for future in futures] == [[0], [2], [4]]
        assert service.wait() == 0
        assert not is_alive(worker)
        assert not os.path.exists(address)
    gate.close()


def test_what_comes_while_it_drains_waits_for_the_next_one(serve, address, tmp_path):
    gate = ProcessGate(tmp_path)
    arguments = (
        *("process_models:PathGate", "--batch-size", "1"),
        *("--model-init-args", f'["{tmp_path}"]'),
    )
    first = serve(*arguments)
    first.line("is served")
    with Streamer.connect(address) as client:
        futures = [client.submit([0])]
        gate.wait_entered()
        first.signal(signal.SIGTERM)
        first.line("stopping")

        def not_taken():
            before = client.stats().submitted
            futures.append(client.submit([len(futures)]))
            return client.stats().submitted == before

        eventually(not_taken)
        gate.open()
        assert first.wait() == 0
        serve(*arguments).line("is served")
        assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(len(futures))]
    gate.close()
