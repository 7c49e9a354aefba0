"""RedisWorker: how it begins and ends."""

import os
import signal
import subprocess
import sys

import pytest
from process_models import BadInit, ProcessGate, double, is_alive
from scripts import SUPPORT
from waits import LONG, eventually

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER
from redis_tools import SLOW, RawClient, new_prefix

from service_streamer import (
    RedisWorker,
    WorkerInitError,
)
from service_streamer._base.errors import BrokerError
from service_streamer._redis.gateway import lease_keeper
from service_streamer._redis.gateway.gateway import Gateway
from service_streamer._redis.protocol import GROUP, Keys

pytest_plugins = ["redis_fixtures"]
pytestmark = NEEDS_SERVER


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"prefix": "{x}"}, ValueError, "prefix"),
        ({"secret": ""}, ValueError, "secret"),
        ({"redis_broker": "http://host"}, ValueError, "redis_broker"),
        ({"worker_num": 0}, ValueError, "worker_num"),
        ({"cuda_devices": ()}, ValueError, "cuda_devices"),
        ({"drain_timeout": -1}, ValueError, "drain_timeout"),
        ({"model_class": 5}, TypeError, "callable"),
    ],
)
def test_a_wrong_setting_is_named(options, error, message):
    with pytest.raises(error, match=message):
        RedisWorker(**{"model_class": double, "batch_size": 8, **options})


def test_its_processes_are_bound_to_the_given_cpus(workers, client):
    cpu, before = max(os.sched_getaffinity(0)), os.sched_getaffinity(0)
    workers(lambda batch: [os.sched_getaffinity(0) for _ in batch], affinity=[[cpu]])
    assert client.ask([1]) == [{cpu}]
    assert os.sched_getaffinity(0) == before


def test_close_answers_what_is_here_and_leaves_the_rest(workers, client, process_gate):
    worker = workers(process_gate, batch_size=2)
    futures = client.send([0])
    process_gate.wait_entered()
    futures += client.send(*[[i] for i in range(1, 10)])
    eventually(lambda: worker.held == 4)
    worker.worker.close()
    process_gate.open()
    worker.join()
    assert worker.error is None
    assert client.results(futures[:4]) == [[0], [2], [4], [6]]
    assert (client.length(), client.pending(), client.consumers()) == (6, 0, [])
    workers()
    assert client.results(futures[4:]) == [[2 * i] for i in range(4, 10)]


def test_close_answers_what_was_on_its_way_when_its_connection_was_cut(
    workers, client, process_gate
):
    worker = workers(process_gate, batch_size=1, _claim_after=LONG)
    futures = client.send([0])
    process_gate.wait_entered()
    futures += client.send([1], [2])
    eventually(lambda: worker.held == 2)
    # what the broker hands out, and the worker does not see
    queue = client.keys.queue
    assert client.redis.xreadgroup(GROUP, worker.name, {queue: ">"})
    worker.worker.close()
    eventually(lambda: worker.held == 3)
    process_gate.open()
    worker.join()
    assert client.results(futures) == [[0], [2], [4]]
    assert (client.length(), client.consumers()) == (0, [])


@pytest.mark.parametrize("how", [{"drain": False}, {"drain_timeout": 0}])
def test_requests_left_at_the_end_go_to_another_worker_at_once(workers, client, process_gate, how):
    worker = workers(process_gate, _claim_after=LONG, drain_timeout=how.get("drain_timeout"))
    futures = client.send([0], [1])
    process_gate.wait_entered()
    eventually(lambda: client.pending() == 2)
    worker.close(drain=how.get("drain", True))
    assert client.pending() == 2
    workers(_claim_after=0.5)
    assert client.results(futures) == [[0], [2]]
    eventually(client.is_clean)


def test_a_dead_consumer_is_removed(workers, client):
    client.redis.xgroup_create(client.keys.queue, GROUP, "0", mkstream=True)
    client.redis.xgroup_createconsumer(client.keys.queue, GROUP, "dead")
    worker = workers(_claim_after=0.05).wait_ready(client)
    eventually(lambda: client.consumers() == [worker.name])


def test_a_broker_that_is_not_there_yet_is_waited_for(workers, raw_clients, servers):
    server = servers()
    server.kill()
    worker = workers(server=server)
    eventually(lambda: worker.worker._gateway is not None)
    server.start()
    assert raw_clients(server=server).ask([1]) == [2]


def test_a_broker_that_will_not_do_is_an_error_at_once(server, raw_clients, servers):
    locked, replica = servers(requirepass="pass"), servers()
    # of no master that exists: it never loads its data
    replica.client().execute_command("REPLICAOF", "127.0.0.1", locked.port)
    odd = new_prefix()
    server.client().set(Keys(odd).queue, "not a stream")
    for address, prefix, message in (
        (f"redis://127.0.0.1:{locked.port}", "", "password"),
        (f"redis://:wrong@127.0.0.1:{locked.port}", "", "user or the password"),
        (replica.url, "", "replica"),
        (server.url, odd, "WRONGTYPE"),
    ):
        worker = RedisWorker(double, 8, redis_broker=address, prefix=prefix)
        with pytest.raises(BrokerError, match=message):
            worker.run_forever()


def test_a_model_that_cannot_be_loaded_ends_it_with_the_traceback(workers, client):
    worker = workers(BadInit, model_init_args=["raise"])
    worker.join()
    assert isinstance(worker.error, WorkerInitError)
    assert type(worker.error.__cause__) is LookupError
    assert 'raise LookupError("no weights here")' in worker.error.__cause__.__cause__.text
    assert client.consumers() == []


@pytest.mark.parametrize("step", ["close", "_end"])
def test_a_signal_after_the_wait_changes_nothing(server, prefix, monkeypatch, step):
    """As when the model cannot be loaded, and a signal comes in that very moment."""
    worker = RedisWorker(double, 8, redis_broker=server.url, prefix=prefix)
    act = getattr(worker, step)

    def fail(gateway, waiter):
        raise LookupError("what ends it")

    def act_and_hear_a_signal(*args, **kwargs):
        monkeypatch.undo()
        signal.raise_signal(signal.SIGTERM)
        act(*args, **kwargs)

    monkeypatch.setattr(Gateway, "wait", fail)
    monkeypatch.setattr(worker, step, act_and_hear_a_signal)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(LookupError, match="what ends it"):
        worker.run_forever()
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_unguarded_script_of_the_original_runs(server, prefix, client, program, threads):
    threads.run(
        program,
        """
        import os, signal, threading
        from service_streamer import ManagedModel, RedisWorker

        class Upper(ManagedModel):
            def init_model(self):
                self.model = str.upper

            def predict(self, batch):
                if "end" in batch:
                    os.kill(os.getppid(), signal.SIGTERM)
                return [self.model(item) for item in batch]

        import sys
        RedisWorker(Upper, 64, redis_broker=sys.argv[1], prefix=sys.argv[2]).run_forever()
        for thread in threading.enumerate()[1:]:
            thread.join(30)  # its work is done, it may still be about to go
        print("ended", threading.active_count())
        """,
        server.address,
        prefix,
    )
    assert client.ask(["a", "b"]) == ["A", "B"]
    assert client.ask(["end"]) == ["END"]
    (done,) = threads.join()
    assert done.stdout == "ended 1\n"


@pytest.mark.parametrize("patched", [False, True])
def test_the_function_of_the_original_runs_in_main_and_in_a_thread(
    server, prefix, client, program, threads, patched
):
    if patched:
        pytest.importorskip("gevent")
    threads.run(
        program,
        f"""
        if {patched}:
            from gevent import monkey
            monkey.patch_all()
        import sys, threading
        from process_models import Model
        from service_streamer import run_redis_workers_forever

        if __name__ == "__main__":
            broker, prefix = sys.argv[1:]
            threading.Thread(
                target=run_redis_workers_forever,
                args=(Model, 8, 0.1, 1, None, broker, prefix + "-thread"),
                daemon=True,
            ).start()
            run_redis_workers_forever(Model, 8, 0.1, 2, (0, 1), broker, prefix, "spawn", ["a"])
            print("ended")
        """,
        server.address,
        prefix,
        env={**os.environ, "PYTHONPATH": SUPPORT},
    )
    (seen,) = client.ask([1], timeout=100)  # four interpreters start
    assert seen["args"] == ("a",)
    other = RawClient(server, f"{prefix}-thread")
    assert other.ask([1], timeout=100)
    other.close()
    (name,) = client.consumers()
    os.kill(int(name.split(b"-")[-2]), signal.SIGTERM)
    (done,) = threads.join()
    assert done.stdout == "ended\n"
    eventually(lambda: not is_alive(seen["pid"]))


def test_the_end_of_the_interpreter_leaves_what_is_here_to_others(
    server, prefix, client, workers, tmp_path
):
    gate = ProcessGate(tmp_path)
    script = """
import os, sys, threading
from process_models import ProcessGate
from service_streamer import RedisWorker

broker, prefix, folder = sys.argv[1:]
worker = RedisWorker(ProcessGate.at(folder), 8, redis_broker=broker, prefix=prefix, shards=2)
threading.Thread(target=worker.run_forever, daemon=True).start()
os.read(0, 1)
"""
    command = [sys.executable, "-c", script, server.address, prefix, str(tmp_path)]
    with subprocess.Popen(command, cwd=SUPPORT, stdin=subprocess.PIPE) as process:
        (future,) = client.send([1])
        model = gate.wait_entered()
        process.stdin.close()
        assert process.wait(LONG) == 0
    eventually(lambda: not is_alive(model))
    assert (client.length(), client.pending()) == (1, 1)
    workers(_claim_after=5.0)  # it is as idle as that already
    assert client.result(future) == [2]
    eventually(client.is_clean)
    gate.close()


@pytest.mark.usefixtures("quick_rounds")
def test_statistics_are_logged_now_and_then(workers, client, caplog, monkeypatch):
    monkeypatch.setattr(lease_keeper, "LOG_INTERVAL", 0.0)
    caplog.set_level("DEBUG", "service_streamer")
    workers(_claim_after=SLOW)
    client.ask([1])
    counts = "fetched 1, answered 1"
    eventually(lambda: any(counts in record.getMessage() for record in caplog.records))
