"""What happens to requests when workers, connections and brokers fail: each is answered once."""

import contextlib
import os
import random
import re
import signal
import socket
import threading
import time

import pytest
from conftest import LONG, eventually
from process_models import ProcessGate, is_alive

pytest.importorskip("redis")

from redis_models import double
from redis_server import RedisServer, find_server
from redis_tools import QUICK, ProcessWorker, RawClient, ThreadedWorker, new_prefix

from service_streamer import RedisStreamer, WorkerLost
from service_streamer._redis.protocol import GROUP

pytestmark = [
    pytest.mark.over_redis,
    pytest.mark.skipif(find_server() is None, reason="no Redis server"),
]

LATER = 3.0  # s: a claim_after that nothing reaches by chance


@pytest.fixture(scope="module")
def shared_server():
    server = RedisServer()
    yield server
    server.close()


@pytest.fixture
def server(request, shared_server, own_server):
    """One of the test's own where it is marked so by using `own_server`."""
    return shared_server if own_server is None else own_server


@pytest.fixture
def own_server(request):
    options = getattr(request, "param", None)
    if options is None:
        yield None
        return
    server = RedisServer(**options)
    yield server
    server.close()


def own(*variants):
    """Give the test servers that it may harm, one for each variant of options."""
    return pytest.mark.parametrize("own_server", variants or [{}], indirect=True)


@pytest.fixture
def prefix():
    return new_prefix()


@pytest.fixture
def client(server, prefix):
    client = RawClient(server, prefix)
    yield client
    client.close()


@pytest.fixture
def workers(server, prefix, leftovers):
    made = []

    def make(model=double, **options):
        made.append(ThreadedWorker(model, server, prefix, **options))
        return made[-1]

    yield make
    for worker in made:
        worker.close(drain=False)


@pytest.fixture
def processes(server, prefix):
    made = []

    def make(model="redis_models:double", **options):
        made.append(ProcessWorker(model, server, prefix, **options))
        return made[-1]

    yield make
    for worker in made:
        worker.kill()
        worker.close()


class Callers:
    """A client with threads that ask until they are told to stop, and look at every answer."""

    def __init__(self, server, prefix, seed):
        self.client = RawClient(server, prefix)
        self.sender = server.client()
        self.failures = []
        self.answered = 0
        self._rng = random.Random(seed)
        self._stop = False
        self._threads = [
            threading.Thread(target=self._run, args=(run,), daemon=True)
            for run in (self._ask, self._read)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self):
        """Have what is under way answered, and end."""
        self._stop = True
        for thread in self._threads:
            thread.join(2 * LONG)
            assert not thread.is_alive(), "a request was never answered"
        assert not self.failures, self.failures
        counts = self.client
        self.client.close()
        self.sender.close()
        return counts.accepted, counts.ignored

    def _run(self, run):
        try:
            run()
        except BaseException as error:
            self.failures.append(error)

    def _ask(self):
        while not self._stop and not self.failures:
            batches = [
                [self._rng.randrange(1000) for _ in range(self._rng.choice([1, 1, 3, 20]))]
                for _ in range(self._rng.choice([1, 4, 16]))
            ]
            futures, parcels = self.client.parcels(*batches)
            pipeline = self.sender.pipeline(transaction=False)
            for parcel in parcels:
                pipeline.xadd(self.client.keys.queue, {"m": self.client.message(parcel)})
            pipeline.execute()
            for batch, future in zip(batches, futures, strict=True):
                assert future.result(LONG) == [2 * item for item in batch]
                self.answered += 1

    def _read(self):
        while self._threads[0].is_alive() and not self.failures:
            self.client.read(0.05)


class StreamerCallers:
    """Threads that ask by a RedisStreamer until they are told to stop, and look at every answer."""

    def __init__(self, server, prefix, seed):
        self.streamer = RedisStreamer(server.url, prefix, worker_timeout=LONG)
        self.failures = []
        self._ends = []
        self._stop = False
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(f"{seed}-{n}"),), daemon=True)
            for n in range(8)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self):
        self._stop = True
        for thread in self._threads:
            thread.join(2 * LONG)
            assert not thread.is_alive(), "a request was never answered"
        self.streamer.close()
        assert not self.failures, self.failures
        assert len(self._ends) == len(set(map(id, self._ends))), "a request ended twice"
        return len(self._ends), 0

    @property
    def answered(self):
        return len(self._ends)

    def _run(self, rng):
        try:
            while not self._stop and not self.failures:
                batch = [rng.randrange(1000) for _ in range(rng.choice([1, 1, 3, 100]))]
                future = self.streamer.submit(batch)
                future.add_done_callback(self._ends.append)
                assert future.result(LONG) == [2 * item for item in batch]
        except BaseException as error:
            self.failures.append(error)


# -------------------------------------------------------------- dead workers


def test_what_a_killed_worker_had_is_answered_by_another(processes, workers, client, tmp_path):
    gate = ProcessGate(tmp_path)
    options = {"model_init_args": [str(tmp_path)], "batch_size": 2}
    doomed = processes("redis_models:Gated", **options)
    futures = client.send(*[[i] for i in range(4)])
    model = gate.wait_entered()
    eventually(lambda: client.pending() == 4)
    doomed.kill()
    eventually(lambda: not is_alive(model))
    gate.open()
    survivor = processes("redis_models:Gated", **options)
    answers = [answer for (answer,) in client.results(futures)]
    assert answers == [(i, survivor.pid) for i in range(4)]
    eventually(client.is_clean)
    eventually(lambda: len(client.consumers()) == 1)
    gate.close()


def test_a_worker_that_dies_between_reply_and_acknowledgement_gives_nobody_two_answers(
    processes, client
):
    processes(die_after_reply=True)
    assert client.ask([1, 2]) == [2, 4]
    assert client.pending() == 1
    processes()
    eventually(client.is_clean)
    while client.read(0.01):
        pass
    assert (client.accepted, client.ignored) == (1, 1)


def test_a_request_that_three_workers_ended_with_is_refused(processes, workers, client, tmp_path):
    gate = ProcessGate(tmp_path)
    (future,) = client.send(["poison"])
    for times in range(1, 4):
        doomed = processes("redis_models:Gated", model_init_args=[str(tmp_path)])
        gate.wait_entered()
        assert client.deliveries() == [times]
        doomed.kill()
    worker = workers()
    with pytest.raises(WorkerLost, match="3 workers in a row"):
        client.result(future)
    assert worker.counts.poisonous == 1
    assert client.ask([1]) == [2]
    eventually(client.is_clean)
    gate.close()


def test_what_a_stalled_worker_had_is_claimed_and_it_gives_it_up(processes, client, tmp_path):
    gate = ProcessGate(tmp_path)
    options = {"model_init_args": [str(tmp_path)], "batch_size": 1}
    stalled = processes("redis_models:Gated", **options)
    futures = client.send(["running"], ["waiting"])
    gate.wait_entered()
    eventually(lambda: client.pending() == 2)
    stalled.signal(signal.SIGSTOP)
    other = processes("redis_models:Gated", **options)
    gate.wait_entered()
    eventually(lambda: client.deliveries() == [2, 2])
    stalled.signal(signal.SIGCONT)
    eventually(lambda: sum(map(int, re.findall(r"taken over (\d+)", stalled.log()))) == 2)
    assert client.deliveries() == [2, 2]
    gate.open()
    assert [answer for (answer,) in client.results(futures)] == [
        ("running", other.pid),
        ("waiting", other.pid),
    ]
    eventually(client.is_clean)
    # it claims nothing back, and does not run what waited
    entered = sorted(item for batch in gate.batches for item in batch)
    assert entered == ["running", "running", "waiting"]
    stalled.wait_ready(client)
    other.kill()
    ((again, pid),) = client.ask(["again"])
    assert (again, pid) == ("again", stalled.pid)
    gate.close()


def test_a_model_that_holds_the_gil_for_long_keeps_its_batch(processes, client):
    for worker in (processes("redis_models:hold_gil"), processes("redis_models:hold_gil")):
        worker.wait_ready(client)
    held = 10 * QUICK  # as long as a minute is for workers with the usual settings
    (future,) = client.send([held])
    seen = set()
    while not future.done():
        seen.update(client.deliveries())
        client.read(0.05)
    (waited,) = future.result()
    assert waited >= held
    assert seen <= {1}
    assert client.ignored == 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", [Callers, StreamerCallers])
def test_fifty_kills_under_load_lose_nothing_and_double_nothing(
    server, prefix, processes, client, kind
):
    rng = random.Random(os.getpid())

    def start():
        return processes("redis_models:steps", worker_num=2, retries=10)

    alive = [start().wait_ready(client) for _ in range(2)]
    callers = [kind(server, prefix, seed) for seed in range(2)]
    pace = threading.Event()
    whole = 0
    for _ in range(50):
        before = [each.answered for each in callers]
        pace.wait(rng.uniform(0, 0.1))
        victim = rng.choice(alive)
        models = children(victim.pid)
        if rng.random() < 0.6 and models:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(models), signal.SIGKILL)
        else:
            whole += 1
            victim.kill()
            alive[alive.index(victim)] = start()
        for each, count in zip(callers, before, strict=True):
            eventually(lambda each=each, count=count: each.answered > count or each.failures)
    accepted, ignored = zip(*[each.stop() for each in callers], strict=True)
    print(f"{sum(accepted)} answers, {sum(ignored)} again, {whole} workers killed as a whole")
    eventually(client.is_clean)


def children(pid):
    found = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    return found


def test_what_a_worker_had_whose_models_cannot_be_loaded_any_more_is_answered_by_another(
    processes, workers, client, tmp_path
):
    gate = ProcessGate(tmp_path)
    broken = processes("redis_models:LoadsOnce", model_init_args=[str(tmp_path)])
    futures = client.send([1])
    model = gate.wait_entered()
    futures += client.send([2])
    eventually(lambda: client.pending() == 2)
    os.kill(model, signal.SIGKILL)
    workers()
    assert client.results(futures) == [[2], [4]]
    assert broken.wait() == 1
    assert "the GPU has fallen off the bus" in broken.log()
    eventually(client.is_clean)
    gate.close()


# --------------------------------------------------------- connections, brokers


class Proxy:
    """A way to the broker that can be cut: nothing comes through, and nobody is told."""

    def __init__(self, server):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}?socket_timeout=2"
        self._server = ("127.0.0.1", server.port)
        self._whole = threading.Event()
        self._whole.set()
        self._threads = []
        self._start(self._accept)

    def cut(self):
        self._whole.clear()

    def mend(self):
        self._whole.set()

    def close(self):
        self.mend()
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(LONG)

    def _start(self, target, *args):
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self):
        with self._listener, contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._start(self._connect, near)

    def _connect(self, near):
        with near, socket.create_connection(self._server) as far:
            back = self._start(self._pass_on, far, near)
            self._pass_on(near, far)
            back.join()

    def _pass_on(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._whole.wait()
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def test_a_worker_behind_a_cut_network_loses_what_it_has_and_comes_back(
    server, workers, client, tmp_path, leftovers
):
    gate = ProcessGate(tmp_path)
    leftovers.append(gate.close)
    proxy = Proxy(server)
    far = workers(gate, redis_broker=proxy.url)
    futures = client.send([1], [2])
    gate.wait_entered()
    eventually(lambda: client.pending() == 2)
    proxy.cut()
    near = workers()
    assert client.results(futures) == [[2], [4]]
    near.close()
    gate.open()
    proxy.mend()
    assert client.ask([3]) == [6]
    assert far.error is None
    far.close()
    proxy.close()


@own()
def test_a_broker_that_closes_every_connection_under_load_loses_nothing(
    server, own_server, prefix, processes, client
):
    processes("redis_models:steps").wait_ready(client)
    callers = Callers(server, prefix, 1)
    pace = threading.Event()
    for _ in range(10):
        pace.wait(0.05)
        for connection in client.redis.client_list():
            # those of the worker: the raw client does not connect again
            if connection["cmd"].lower() in ("xreadgroup", "exec", "eval", "multi"):
                with contextlib.suppress(Exception):
                    client.redis.client_kill(connection["addr"])
    callers.stop()
    eventually(client.is_clean)


@own()
def test_flushall_is_survived(server, own_server, workers, client, process_gate):
    worker = workers(process_gate)
    (lost,) = client.send([1])
    process_gate.wait_entered()
    client.redis.flushall()
    process_gate.open()
    assert client.result(lost) == [2]  # it was here already
    assert client.ask([2]) == [4]
    assert worker.error is None
    eventually(client.is_clean)


def test_a_group_that_is_destroyed_is_made_again(workers, client):
    workers()
    client.ask([1])
    client.redis.xgroup_destroy(client.keys.queue, GROUP)
    assert client.ask([2]) == [4]


@own({"appendonly": "yes"}, {})
def test_a_broker_that_is_restarted(server, own_server, request, prefix, workers, process_gate):
    kept = request.node.callspec.params["own_server"]
    client = RawClient(server, prefix)
    worker = workers(process_gate, batch_size=1)
    futures = client.send([1], [2], [3], [4])
    process_gate.wait_entered()
    eventually(lambda: client.pending() == 2)
    server.kill()
    process_gate.open()  # they end while there is no broker
    server.start()
    expected = [[2], [4], [6], [8]]
    if not kept:  # those that were not here are lost: their client would send them again
        futures, expected = futures[:2], expected[:2]
    assert client.results(futures) == expected
    assert client.ask([5]) == [10]
    assert worker.error is None
    eventually(client.is_clean)
    client.close()


@own()
def test_a_broker_that_answers_nothing_for_a_while(
    server, own_server, workers, client, process_gate
):
    workers(process_gate)
    (future,) = client.send([1])
    process_gate.wait_entered()
    server.freeze()
    process_gate.open()
    threading.Event().wait(2 * QUICK)
    server.thaw()
    assert client.result(future) == [2]
    eventually(client.is_clean)


@own({"maxmemory": "3mb", "maxmemory-policy": "noeviction"})
def test_a_broker_without_memory_gets_replies_when_requests_are_gone(
    server, own_server, prefix, workers, client
):
    futures = []
    client.redis.config_set("maxmemory", 0)
    client.redis.xgroup_create(client.keys.queue, GROUP, "0", mkstream=True)
    futures = client.send(*[[bytes(50_000)] for _ in range(60)])
    used = client.redis.info("memory")["used_memory"]
    client.redis.config_set("maxmemory", used - 1_000_000)
    workers(len_of, batch_size=4)
    assert client.results(futures) == [[50_000]] * 60
    eventually(client.is_clean)


def len_of(batch):
    return [len(item) for item in batch]


def test_a_worker_ends_although_the_broker_is_away(prefix, process_gate):
    server = RedisServer()
    client = RawClient(server, prefix)
    worker = ThreadedWorker(process_gate, server, prefix)
    client.send([1])
    process_gate.wait_entered()
    server.kill()
    process_gate.open()
    begin = time.monotonic()
    worker.close()
    assert worker.error is None
    assert time.monotonic() - begin < LONG
    client.close()
    server.close()
