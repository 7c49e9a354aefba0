"""Programs that end, fork, or are interrupted while requests are open; and numbers of replicas."""

import signal
import subprocess
import sys
import time

import pytest
from ray_models import HeldBy, double_slowly
from waits import LONG, eventually

from service_streamer import ClusterError, RayStreamer
from service_streamer._ray import cluster

PROGRAM = """
import os, sys, time
from ray_models import HeldBy
from service_streamer import RayStreamer, StreamerError, ThreadedStreamer

ThreadedStreamer(sorted, 1)  # its exit hook runs after that of Ray
streamer = RayStreamer(HeldBy(sys.argv[2]), 4, num_cpus=0.01, ray_address=sys.argv[1])
future = streamer.submit(["hold"])
while not os.path.exists(sys.argv[2] + "/holds"):
    assert not future.done(), future
    time.sleep(0.01)
"""
FORK = """
child = os.fork()
if child == 0:
    try:
        streamer.predict([1])
    except StreamerError as error:
        os._exit(0 if "cannot be used in a forked child" in str(error) else 1)
    os._exit(2)
assert os.waitpid(child, 0)[1] == 0
print("forked", flush=True)
"""
LEAVE = """
import ray, threading

def receiver_waits():
    (receiver,) = [each for each in threading.enumerate() if each.name.endswith("-receiver")]
    frame, names = sys._current_frames()[receiver.ident], set()
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return "get_objects" in names  # of ray.get()

while not receiver_waits():
    time.sleep(0.01)
ray.shutdown()
streamer.close()
print(type(future.exception()).__name__, ray.is_initialized())
"""
WAIT = """
print("waits", flush=True)
future.result()
"""


@pytest.fixture
def ray_programs(ray_cluster, tmp_path):
    """Starts a program with the address of the cluster and a folder."""
    started = []

    def start(text):
        command = [sys.executable, "-c", text, ray_cluster.address, str(tmp_path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_program_ends_and_forks_while_a_request_is_open(ray_programs):
    process = ray_programs(PROGRAM + FORK)
    out, err = process.communicate(timeout=3 * LONG)
    assert (process.returncode, b"forked" in out, b"Error" in err) == (0, True, False), err.decode()


def test_a_program_that_has_left_the_cluster_closes_its_streamer(ray_programs):
    process = ray_programs(PROGRAM + LEAVE)
    out, err = process.communicate(timeout=3 * LONG)
    assert (process.returncode, out) == (0, b"StreamerClosed False\n"), err.decode()


def test_a_program_that_waits_can_be_interrupted(ray_programs):
    process = ray_programs(PROGRAM + WAIT)
    while process.stdout.readline() != b"waits\n":
        assert process.poll() is None, process.stderr.read()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=3 * LONG)
    assert b"KeyboardInterrupt" in err
    assert process.returncode not in (0, None)


def test_replicas_are_added_in_a_burst_and_removed_without_a_loss(ray_streamers, tmp_path):
    streamer = ray_streamers(double_slowly, 1, replicas=(1, 2), target_queue_time=0.001)
    streamer.wait_ready(LONG)
    begun = time.monotonic()
    futures = [streamer.submit([n]) for n in range(2000)]
    eventually(lambda: streamer.stats().workers == 2)
    decided = time.monotonic() - begun
    eventually(lambda: len(streamer._client.replicas()) == 2)
    print(f"burst: decided after {decided:.2f} s, ready after {time.monotonic() - begun:.2f} s")
    streamer.resize(1)
    assert [future.result(LONG) for future in futures] == [[2 * n] for n in range(2000)]
    assert streamer.stats().workers == 1


def test_replicas_that_hold_a_batch_finish_it_before_they_are_removed(ray_streamers, tmp_path):
    streamer = ray_streamers(HeldBy(tmp_path), 1, replicas=2)
    streamer.wait_ready(LONG)
    held = [streamer.submit(["hold"]) for _ in range(2)]
    eventually(lambda: streamer.stats().running_batches == 2)
    streamer.resize(1)
    eventually(lambda: streamer.stats().workers == 1)
    (tmp_path / "go").touch()
    assert [future.result(LONG) for future in held] == [["hold"]] * 2
    assert streamer.predict(["next"]) == ["next"]


def test_an_address_without_a_cluster_is_reported_at_once(monkeypatch):
    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)
    with pytest.raises(ClusterError, match=r"there is no Ray cluster at 127.0.0.1:9 that can be"):
        RayStreamer(double_slowly, 8, ray_address="127.0.0.1:9")
    with pytest.raises(ValueError, match=r"ray_address must be host:port.*, not 'nowhere'"):
        RayStreamer(double_slowly, 8, ray_address="nowhere")
