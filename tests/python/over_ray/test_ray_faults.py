"""Deaths under load: every request ends once."""

import json
import os
import random
import signal
import threading

import numpy
import pytest
import ray
from ray_models import Creator, HeldBy, Mortal, die_of_that, double_slowly
from waits import LONG, eventually

from service_streamer import RayStreamer, StreamerClosed, StreamerError, WorkerLost

CALLERS = 8
ENDURANCE = (pytest.mark.endurance, pytest.mark.timeout(600))


class Load:
    """Requests of several threads, whose answers are checked."""

    def __init__(self, streamer):
        self._streamer = streamer
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.errors = []
        self.answered = self.ends = self.sent = 0
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(CALLERS)]
        for thread in self._threads:
            thread.start()

    def more(self, count=20):
        """Wait until so many further requests were answered."""
        wanted = self.answered + count
        eventually(lambda: self.answered >= wanted, 3 * LONG)

    def end(self):
        self._stop.set()
        for thread in self._threads:
            thread.join(3 * LONG)
            assert not thread.is_alive(), "a request has not ended"
        eventually(lambda: self.ends == self.sent)
        return self.errors

    def _run(self, seed):
        rng = random.Random(seed)
        while not self._stop.is_set():
            items = [rng.randrange(1000) for _ in range(rng.choice([1, 1, 3, 20]))]
            if rng.random() < 0.4:  # these and their outputs go through the store of a process
                items = [numpy.full(8192, item) for item in items]
            future = self._streamer.submit(items)
            future.add_done_callback(self._ended)
            try:
                outputs = future.result(2 * LONG)
                assert numpy.array_equal(outputs, [2 * item for item in items])
            except BaseException as error:
                self.errors.append(error)
            with self._lock:
                self.answered += 1
                self.sent += 1

    def _ended(self, _):
        with self._lock:
            self.ends += 1


def pids(streamer):
    return [json.loads(about)["pid"] for about in streamer._client.replicas()]


def kill_process(streamer, rng, folder):
    """Kill a process of a replica, maybe of one that loads the model."""
    eventually(lambda: any(folder.iterdir()), 3 * LONG)
    noted = rng.choice(sorted(folder.iterdir()))
    noted.unlink()
    os.kill(int(noted.name), signal.SIGKILL)


def kill_replica(streamer, rng, folder):
    ray.kill(streamer.predict_one("handle"))


def kill_owner(streamer, rng, folder):
    ray.kill(streamer._client.owner, no_restart=False)
    streamer.wait_ready(3 * LONG)


def remove_replica(streamer, rng, folder):
    streamer.resize(1)
    eventually(lambda: streamer.stats().workers == 1)
    streamer.resize(2)
    streamer.wait_ready(3 * LONG)


def run_with_kills(streamer, kill, kills, folder=None):
    rng = random.Random(kills)
    streamer.wait_ready(3 * LONG)
    load = Load(streamer)
    for _ in range(kills):
        load.more(rng.randrange(1, 30))
        kill(streamer, rng, folder)
    load.more()
    return load.end()


@pytest.fixture
def mortal(ray_streamers, tmp_path):
    """A streamer whose replicas note the pids of their processes in a folder."""
    limits = {"replicas": 2, "retries": 5, "worker_timeout": None}
    return ray_streamers(Mortal, 8, model_init_args=[str(tmp_path)], **limits)


class Nodes:
    """Nodes of a cluster, each with a place for one replica."""

    def __init__(self, cluster):
        self._cluster = cluster
        self._all = []

    def add(self):
        self._all.append(self._cluster.add_node(num_cpus=1, resources={"place": 1}))

    def kill(self, index):
        self._cluster.remove_node(self._all.pop(index), allow_graceful=False)

    def remove_all(self):
        while self._all:
            self._cluster.remove_node(self._all.pop())


@pytest.fixture
def nodes(ray_cluster):
    made = Nodes(ray_cluster)
    yield made
    made.remove_all()


@pytest.mark.parametrize("kill", [kill_process, kill_replica])
def test_no_request_is_lost_when_replicas_are_killed(mortal, tmp_path, kill):
    assert run_with_kills(mortal, kill, 3, tmp_path) == []
    eventually(lambda: mortal.stats().worker_restarts >= 1)


def test_no_request_is_lost_when_the_owner_is_killed(ray_streamers):
    streamer = ray_streamers(double_slowly, 8, replicas=2, worker_timeout=None)
    assert run_with_kills(streamer, kill_owner, 2) == []


def test_no_request_is_lost_when_replicas_are_removed(ray_streamers):
    streamer = ray_streamers(double_slowly, 8, replicas=2, retries=5, worker_timeout=None)
    assert run_with_kills(streamer, remove_replica, 3) == []
    assert streamer.stats().worker_restarts == 0


@pytest.mark.endurance
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kill", "kills"), [(kill_process, 25), (kill_replica, 10), (kill_owner, 15)]
)
def test_no_request_is_lost_in_50_kills(mortal, tmp_path, kill, kills):
    assert run_with_kills(mortal, kill, kills, tmp_path) == []


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=ENDURANCE)])
def test_no_request_is_lost_when_nodes_die(nodes, ray_streamers, kills):
    nodes.add()
    nodes.add()
    streamer = ray_streamers(
        double_slowly, 8, replicas=2, resources={"place": 1}, retries=5, worker_timeout=None
    )
    dead = 0

    def kill_node(streamer, rng, _):
        nonlocal dead
        if dead > 0:
            nodes.add()
            eventually(lambda: len(pids(streamer)) == 2, 3 * LONG)
        nodes.kill(rng.randrange(2))
        dead += 1
        # Ray may only notice it by 15 s and more without heartbeats.
        eventually(lambda: streamer.stats().worker_restarts == dead, 2 * LONG)

    assert run_with_kills(streamer, kill_node, kills) == []
    assert len(pids(streamer)) == 1  # there is no place for the other one


def test_clients_get_streamer_closed_when_the_node_of_the_creator_dies(nodes, tmp_path):
    nodes.add()
    place = ray.remote(num_cpus=0, resources={"place": 1})
    creator = place(Creator).remote(str(tmp_path), "elsewhere")
    ray.get(creator.wait_ready.remote(2 * LONG))
    with RayStreamer.connect("elsewhere") as client:
        held = client.submit(["hold"])
        eventually((tmp_path / "holds").exists, 2 * LONG)
        nodes.kill(0)
        with pytest.raises(StreamerClosed, match="its owner has ended"):
            held.result(2 * LONG)


def test_a_batch_that_kills_each_replica_is_given_up(ray_streamers):
    streamer = ray_streamers(die_of_that, 8, replicas=1, retries=1)
    with pytest.raises(WorkerLost, match=r"a replica died while it had the batch .*, 2 times"):
        streamer.predict(["die"], timeout=2 * LONG)
    assert streamer.predict([1], timeout=2 * LONG) == [1]


def test_a_replica_that_hangs_is_replaced(ray_streamers, tmp_path):
    streamer = ray_streamers(HeldBy(tmp_path), 8, retries=0, worker_hang_timeout=1)
    with pytest.raises(WorkerLost, match=r"a replica died while it had the batch .*, once"):
        streamer.predict(["hold"], timeout=2 * LONG)
    assert streamer.predict([1], timeout=2 * LONG) == [1]


def test_without_retries_nothing_runs_twice(ray_streamers, tmp_path):
    streamer = ray_streamers(HeldBy(tmp_path), 8, retries=0)
    held = streamer.submit(["hold"])
    eventually((tmp_path / "holds").exists, 2 * LONG)
    ray.kill(streamer._client.owner, no_restart=False)
    with pytest.raises(WorkerLost, match="the owner of the batches was lost"):
        held.result(2 * LONG)
    assert streamer.predict([1], timeout=2 * LONG) == [1]


def test_requests_end_when_the_owner_does_not_come_back(ray_streamers, tmp_path):
    streamer = ray_streamers(HeldBy(tmp_path), 8)
    held = streamer.submit(["hold"])
    eventually((tmp_path / "holds").exists, 2 * LONG)
    ray.kill(streamer._client.owner)
    with pytest.raises(StreamerClosed, match="its owner has ended"):
        held.result(2 * LONG)
    with pytest.raises(StreamerError):
        streamer.predict([1])
