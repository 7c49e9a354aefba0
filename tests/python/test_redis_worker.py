"""RedisWorker: what it does with requests, and how it begins and ends."""

import inspect
import os
import random
import signal
import struct
import subprocess
import sys

import pytest
from conftest import LONG, eventually
from process_models import BadInit, Model, ProcessGate, deadly, double, is_alive

pytest.importorskip("redis")

from redis_server import RedisServer, find_server
from redis_tools import RawClient, ThreadedWorker, new_prefix

from service_streamer import (
    RedisWorker,
    WorkerInitError,
    WorkerLost,
    run_redis_workers_forever,
)
from service_streamer._errors import BrokerError, WorkerTraceback
from service_streamer._redis import keeper
from service_streamer._redis.protocol import GROUP, VERSION, Keys, Signer

pytestmark = [
    pytest.mark.over_redis,
    pytest.mark.skipif(find_server() is None, reason="no Redis server"),
]

TESTS = os.path.dirname(__file__)
COMMAND = [sys.executable, "-m", "service_streamer", "redis-worker"]


@pytest.fixture(scope="module")
def server():
    server = RedisServer()
    yield server
    server.close()


@pytest.fixture
def prefix():
    return new_prefix()


@pytest.fixture
def clients(server, prefix):
    made = []

    def make(prefix=prefix, server=server, **options):
        made.append(RawClient(server, prefix, **options))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(clients):
    return clients()


@pytest.fixture
def workers(server, prefix, leftovers):
    made = []

    def make(model=double, prefix=prefix, server=server, **options):
        made.append(ThreadedWorker(model, server, prefix, **options))
        return made[-1]

    yield make
    for worker in made:
        worker.close(drain=False)


# --------------------------------------------------------------------- requests


def test_it_answers_and_leaves_nothing_in_the_queue(workers, client):
    workers()
    futures = client.send([1, 2], ["a"], [], list(range(200)))
    assert client.results(futures) == [[2, 4], ["aa"], [], [2 * i for i in range(200)]]
    eventually(client.is_clean)


def test_what_was_sent_before_it_came_is_answered(workers, client):
    futures = client.send([1], [2])
    workers()
    assert client.results(futures) == [[2], [4]]


def test_replies_expire(workers, client):
    workers()
    client.ask([1])
    assert 0 < client.redis.pttl(client.reply_key) <= 3_600_000


def test_prefixes_do_not_see_each_other(workers, clients):
    prefixes = ["", new_prefix(), new_prefix()]
    for prefix in prefixes:
        workers(Model, prefix=prefix, model_init_args=[prefix])
    for prefix in prefixes:
        (seen,) = clients(prefix).ask(["item"])
        assert seen["args"] == (prefix,)


def test_requests_of_many_clients_share_batches(workers, clients, process_gate):
    workers(process_gate)
    both = clients(), clients()
    (first,) = both[0].send(["first"])
    process_gate.wait_entered()
    futures = [client.send([i])[0] for i, client in enumerate(both)]
    eventually(lambda: both[0].pending() == 3)
    process_gate.open()
    for i, client in enumerate(both):
        assert client.result(futures[i]) == [2 * i]
    assert both[0].result(first) == ["firstfirst"]
    assert sorted(process_gate.batches[1]) == [0, 1]


def test_requests_of_higher_priority_go_first(workers, client, process_gate):
    workers(process_gate, batch_size=1, worker_num=1)
    futures = client.send(["first"])
    process_gate.wait_entered()
    futures += client.send(["low"], priority=0)
    eventually(lambda: client.pending() == 2)
    process_gate.open()
    futures += client.send(["high"], priority=5)
    assert client.results(futures) == [["firstfirst"], ["lowlow"], ["highhigh"]]


def test_an_exception_of_the_model_reaches_its_request_alone(workers, client, process_gate):
    def picky(batch):
        if "bad" in batch:
            raise LookupError("bad item")
        return batch

    process_gate._predict = picky
    workers(process_gate)
    (first,) = client.send(["first"])
    process_gate.wait_entered()
    bad, good = client.send(["bad"], ["good"])
    eventually(lambda: client.pending() == 3)
    process_gate.open()
    with pytest.raises(LookupError, match="bad item") as info:
        client.result(bad)
    assert isinstance(info.value.__cause__, WorkerTraceback)
    assert client.results([first, good]) == [["first"], ["good"]]


def test_a_model_process_that_dies_is_replaced_and_its_batch_run_again(
    workers, client, process_gate
):
    workers(process_gate)
    (future,) = client.send([1])
    os.kill(process_gate.wait_entered(), signal.SIGKILL)
    process_gate.open()
    assert client.result(future) == [2]
    assert client.deliveries() == []


def test_a_request_that_kills_its_process_twice_is_lost_alone(workers, client):
    worker = workers(deadly)
    (bad,) = client.send(["die:SIGKILL"])
    with pytest.raises(WorkerLost):
        client.result(bad)
    assert client.ask(["good"]) == ["good"]
    assert worker.counts.poisonous == 0


# ------------------------------------------------------- deadlines, cancellation


def test_an_entry_that_comes_too_late_is_dropped_unread(workers, client, process_gate):
    client.send(["late"], deadline=-1)
    (good,) = client.send(["good"], deadline=LONG)
    worker = workers(process_gate)
    process_gate.open()
    assert client.result(good) == ["goodgood"]
    assert process_gate.batches == [["good"]]
    assert worker.counts.expired == 1
    eventually(client.is_clean)


def test_an_entry_that_becomes_too_late_here_never_reaches_the_model(workers, client, process_gate):
    worker = workers(process_gate)
    futures = client.send(["first"])
    process_gate.wait_entered()
    client.send(["late"], deadline=0.05)
    eventually(lambda: worker.counts.expired == 1)
    process_gate.open()
    futures += client.send(["good"])
    client.results(futures)
    assert [item for batch in process_gate.batches for item in batch] == ["first", "good"]
    eventually(client.is_clean)


def test_an_entry_that_its_client_withdraws_never_reaches_the_model(workers, client, process_gate):
    worker = workers(process_gate)
    futures = client.send(["first"])
    process_gate.wait_entered()
    client.send(["unwanted"])
    eventually(lambda: client.pending() == 2)
    client.redis.xdel(client.keys.queue, *client.entries)
    eventually(lambda: worker.counts.withdrawn == 1)
    process_gate.open()
    futures += client.send(["good"])
    client.results(futures)
    assert [item for batch in process_gate.batches for item in batch] == ["first", "good"]
    eventually(client.is_clean)


# ------------------------------------------------------------ several workers


def test_a_worker_takes_two_batches_at_most_and_a_second_one_finds_work(
    workers, client, tmp_path, leftovers
):
    gates = [ProcessGate(tmp_path / name) for name in ("a", "b") if not (tmp_path / name).mkdir()]
    leftovers.extend(gate.close for gate in gates)
    workers(gates[0], batch_size=4)
    futures = client.send([0])
    gates[0].wait_entered()
    futures += client.send(*[[i] for i in range(1, 40)])
    eventually(lambda: client.pending() == 8)
    workers(gates[1], batch_size=4)
    gates[1].wait_entered()
    eventually(lambda: client.pending() == 16)
    for gate in gates:
        gate.open()
    assert client.results(futures) == [[2 * i] for i in range(40)]


def test_large_entries_are_counted_by_their_items(workers, client, process_gate):
    workers(process_gate, batch_size=8)
    futures = client.send(*[[i] * 8 for i in range(10)])
    process_gate.wait_entered()
    eventually(lambda: client.pending() == 2)
    process_gate.open()
    assert client.results(futures) == [[2 * i] * 8 for i in range(10)]


def test_each_process_has_its_device(workers, client):
    workers(Model, worker_num=2, cuda_devices=(0, "GPU-1"), batch_size=1)
    seen = set()

    def ask():
        futures = client.send(*[[i] for i in range(8)])
        seen.update(answer["device"] for (answer,) in client.results(futures))
        return seen == {"0", "GPU-1"}

    eventually(ask)


def test_run_forever_takes_a_device(server, prefix, client, threads):
    worker = RedisWorker(Model, 8, redis_broker=server.url, prefix=prefix)
    threads.run(worker.run_forever, 3)
    (seen,) = client.ask([1])
    assert (seen["device"], seen["gpu_id"]) == ("3", 3)
    worker.close()
    assert threads.join() == [None]


# --------------------------------------------------------- messages of others


def test_what_is_no_message_is_dropped_counted_and_logged_once(workers, client, caplog):
    good_head = client.message((7, 0, 1, None, 0, b""))
    for foreign in (b"", b"junk", b"SS", good_head[:20], b"XX" + good_head[2:]):
        client.post(foreign)
    client.redis.xadd(client.keys.queue, {"other": "field"})
    client.redis.xadd(client.keys.queue, {"m": "two", "n": "fields"})
    worker = workers()
    assert client.ask([1]) == [2]
    assert worker.counts.foreign == 7
    eventually(client.is_clean)
    told = [record for record in caplog.records if "no message" in record.getMessage()]
    assert len(told) == 1


def test_a_request_that_is_malformed_is_refused(workers, client):
    (future,), (parcel,) = client.parcels([1, 2])
    number, begin, items, deadline, priority, body = parcel
    client.post(client.message((number, begin, items, deadline, priority, body[:-1])))
    workers()
    with pytest.raises(WorkerLost, match="cannot be read"):
        client.result(future)
    (future,), (parcel,) = client.parcels([1, 2])
    client.post(client.message((parcel[0], 0, 3, None, 0, parcel[5])))
    with pytest.raises(WorkerLost, match="2 items, not the 3"):
        client.result(future)
    assert client.ask([1]) == [2]
    eventually(client.is_clean)


def test_another_version_of_the_protocol_is_refused_by_name(workers, client):
    (future,), (parcel,) = client.parcels([1])
    message = bytearray(client.message(parcel))
    message[2] = VERSION + 1
    client.post(bytes(message))
    workers()
    with pytest.raises(WorkerLost, match=f"version {VERSION + 1}"):
        client.result(future)
    eventually(client.is_clean)


def test_damaged_heads_end_nobody_but_their_request(workers, client):
    worker = workers()
    rng = random.Random(1)
    _, (parcel,) = client.parcels([1, 2, 3])
    good = client.message(parcel)
    for _ in range(300):
        damaged = bytearray(good)
        for at in rng.sample(range(64), rng.choice([1, 1, 2, 8])):  # the head, and the counts
            damaged[at] = rng.choice([0, 1, 127, 128, 255])
        client.post(bytes(damaged))
    extreme = struct.pack("<qq", 2**63 - 1, -(2**63))
    client.post(good[:32] + extreme + good[48:])
    client.post(good[:32] + extreme[::-1] + good[48:])
    assert client.ask([1]) == [2]
    eventually(client.is_clean)
    assert worker.error is None


@pytest.mark.parametrize("secret", [None, "wrong"])
def test_messages_without_the_secret_are_dropped_unread(workers, clients, secret, caplog):
    stranger, client = clients(secret=secret), clients(secret="right")
    stranger.send([1], [2])
    worker = workers(secret="right")
    assert client.ask([3]) == [6]
    assert worker.counts.forged == 2
    assert stranger.redis.xlen(stranger.reply_key) == 0
    eventually(client.is_clean)
    assert len([r for r in caplog.records if "signature" in r.getMessage()]) == 1


def test_a_signed_message_cannot_be_replayed_into_another_queue_or_later(workers, clients):
    here, there = clients(secret="right"), clients(new_prefix(), secret="right")
    _, (parcel,) = here.parcels([1])
    old = 25 * 3600
    aged = here.message(parcel)[:44] + b"\0" * 8 + here.message(parcel)[52:]
    assert old
    there.redis.xadd(
        there.keys.queue, {"m": Signer("right").seal(here.keys.queue, here.message(parcel))}
    )
    there.post(aged)
    worker = workers(secret="right", prefix=there.keys.prefix)
    assert there.ask([3]) == [6]
    assert (worker.counts.forged, worker.counts.expired) == (1, 1)


def test_a_reply_that_is_too_large_for_the_broker_is_an_error_that_says_so(
    prefix, workers, clients
):
    server = RedisServer(proto_max_bulk_len="1mb")
    try:
        workers(lambda batch: [b"x" * n for n in batch], server=server)
        client = clients(server=server)
        large, small = client.send([2_000_000], [5])
        with pytest.raises(WorkerLost, match=r"2,000,\d+ bytes.*1,048,\d+ at most"):
            client.result(large)
        assert client.result(small) == [b"xxxxx"]
        eventually(client.is_clean)
    finally:
        server.close()


def test_a_reply_key_that_is_no_stream_costs_nobody_else_anything(workers, clients, caplog):
    odd, client = clients(), clients()
    odd.redis.set(odd.reply_key, "not a stream")
    workers()
    odd.send([1])
    assert client.ask([2]) == [4]
    eventually(client.is_clean)
    assert any("no reply can be sent" in record.getMessage() for record in caplog.records)


# -------------------------------------------------------------- begin and end


def test_old_signatures():
    empty = inspect.Parameter.empty
    common = {"model_class": empty, "batch_size": empty, "max_latency": 0.1}
    broker = {"redis_broker": "localhost:6379", "prefix": ""}
    init = {"model_init_args": None, "model_init_kwargs": None}
    several = {"worker_num": 1, "cuda_devices": None}
    for function, expected in (
        (RedisWorker, {**common, **broker, **init}),
        (
            run_redis_workers_forever,
            {**common, **several, **broker, "mp_start_method": "spawn", **init},
        ),
    ):
        parameters = inspect.signature(function).parameters.values()
        positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert [(p.name, p.default) for p in positional] == list(expected.items())
    (gpu,) = list(inspect.signature(RedisWorker.run_forever).parameters.values())[1:]
    assert (gpu.name, gpu.default) == ("gpu_id", None)


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


def test_close_answers_what_is_here_and_leaves_the_rest(workers, client, process_gate):
    worker = workers(process_gate, batch_size=2)
    futures = client.send([0])
    process_gate.wait_entered()
    futures += client.send(*[[i] for i in range(1, 10)])
    eventually(lambda: client.pending() == 4)
    worker.worker.close()
    process_gate.open()
    worker.join()
    assert worker.error is None
    assert client.results(futures[:4]) == [[0], [2], [4], [6]]
    assert (client.length(), client.pending(), client.consumers()) == (6, 0, [])
    workers()
    assert client.results(futures[4:]) == [[2 * i] for i in range(4, 10)]


@pytest.mark.parametrize("how", [{"drain": False}, {"drain_timeout": 0}])
def test_what_is_not_answered_at_the_end_is_another_workers_at_once(
    workers, client, process_gate, how
):
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


def test_a_broker_that_is_not_there_yet_is_waited_for(workers, clients):
    server = RedisServer()
    try:
        server.kill()
        worker = workers(server=server)
        eventually(lambda: worker.worker._gateway is not None)
        server.start()
        assert clients(server=server).ask([1]) == [2]
    finally:
        server.close()


def test_a_broker_that_will_not_do_is_an_error_at_once(server, clients):
    locked, replica = RedisServer(requirepass="pass"), RedisServer()
    try:
        replica.client().execute_command("REPLICAOF", "127.0.0.1", server.port)
        odd = new_prefix()
        server.client().set(Keys(odd).queue, "not a stream")
        for address, prefix, message in (
            (f"redis://127.0.0.1:{locked.port}", "", "asks for a password"),
            (f"redis://:wrong@127.0.0.1:{locked.port}", "", "refuses the user or the password"),
            (replica.url, "", "replica"),
            (server.url, odd, "WRONGTYPE"),
        ):
            worker = RedisWorker(double, 8, redis_broker=address, prefix=prefix)
            with pytest.raises(BrokerError, match=message):
                worker.run_forever()
    finally:
        locked.close()
        replica.close()


def test_a_model_that_cannot_be_loaded_ends_it_with_the_traceback(workers, client):
    worker = workers(BadInit, model_init_args=["raise"])
    worker.join()
    assert isinstance(worker.error, WorkerInitError)
    assert 'raise LookupError("no weights here")' in str(worker.error)
    assert client.consumers() == []


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
        env={**os.environ, "PYTHONPATH": TESTS},
    )
    (seen,) = client.ask([1])
    assert seen["args"] == ("a",)
    other = RawClient(server, f"{prefix}-thread")
    assert other.ask([1])
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
worker = RedisWorker(ProcessGate.at(folder), 8, redis_broker=broker, prefix=prefix)
threading.Thread(target=worker.run_forever, daemon=True).start()
os.read(0, 1)
"""
    command = [sys.executable, "-c", script, server.address, prefix, str(tmp_path)]
    with subprocess.Popen(command, cwd=TESTS, stdin=subprocess.PIPE) as process:
        (future,) = client.send([1])
        model = gate.wait_entered()
        process.stdin.close()
        assert process.wait(LONG) == 0
    assert not is_alive(model)
    assert (client.length(), client.pending()) == (1, 1)
    workers(_claim_after=5.0)  # it is as idle as that already
    assert client.result(future) == [2]
    eventually(client.is_clean)
    gate.close()


def test_statistics_are_logged_now_and_then(workers, client, caplog, monkeypatch):
    monkeypatch.setattr(keeper, "TELL", 0.0)
    caplog.set_level("DEBUG", "service_streamer")
    workers()
    client.ask([1])
    told = "entries: fetched 1, answered 1; 0 are here"
    eventually(lambda: any(told in record.getMessage() for record in caplog.records))


# --------------------------------------------------------------- the command


class Service:
    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], cwd=TESTS, stderr=subprocess.PIPE, text=True
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
    service.line("ends when all that is here is answered")
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
    service.line("ends when")
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
    _, errors = service.process.communicate(timeout=LONG)
    assert service.process.returncode == 1
    assert message in errors


def test_help_has_an_example():
    done = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0
    assert "RedisStreamer(" in done.stdout
