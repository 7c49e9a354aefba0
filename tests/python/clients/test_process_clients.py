"""Processes without workers of their own: forked children, and those that connect."""

import signal
import subprocess
import sys
import textwrap

import pytest
from process_models import double, is_alive
from scripts import SUPPORT
from waits import LONG, eventually

from service_streamer import (
    QueueFull,
    RequestTimeout,
    Streamer,
    StreamerClosed,
    WorkerInitError,
    WorkerLost,
)

pytestmark = pytest.mark.slow

PRELUDE = f"""
import os, signal, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)
sys.path.insert(0, {SUPPORT!r})
from process_models import *
from service_streamer import *
"""


class Peer:
    """Another Python process, which a test talks to by lines."""

    def __init__(self, code):
        self.process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", PRELUDE + textwrap.dedent(code)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid

    def line(self):
        line = self.process.stdout.readline()
        assert line, "it has ended"
        return line.rstrip("\n")

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)

    def wait(self):
        return self.process.wait(LONG)


@pytest.fixture
def peers():
    made = []

    def make(code):
        made.append(Peer(code))
        return made[-1]

    yield make
    for peer in made:
        peer.kill()
        peer.process.communicate()


@pytest.fixture(params=["a path", "an abstract name"])
def address(request, tmp_path):
    path = str(tmp_path / "streamer")
    return path if request.param == "a path" else "@" + path


@pytest.fixture
def clients():
    made = []

    def make(address, **options):
        made.append(Streamer.connect(address, **options))
        return made[-1]

    yield make
    for client in made:
        client.close(drain=False, timeout=LONG)


# ----------------------------------------------------------------------- the face


def test_another_process_connects_by_address(process_streamers, peers, address):
    streamer = process_streamers(double, address=address)
    assert streamer.address == address
    peer = peers(f"print(Streamer.connect({address!r}).predict([1, 2]))")
    assert peer.line() == "[2, 4]"
    assert peer.wait() == 0
    assert streamer.stats().completed == 1


def test_a_client_has_the_face_of_a_streamer(process_streamers, clients, address):
    streamer = process_streamers(double, address=address, worker_num=2)
    client = clients(address)
    client.wait_ready(LONG)
    assert client.predict([1]) == [2]
    assert client.submit([2]).result(LONG) == [4]
    assert list(client.map(range(100))) == [2 * i for i in range(100)]
    client.configure(policy="greedy", batch_size=3)
    for each in (client, streamer):
        stats = each.stats()
        assert (stats.policy, stats.batch_size, stats.max_latency) == ("greedy", 3, 0.1)
        assert stats.completed == stats.submitted
        assert len(stats.worker_processes) == 2
    assert address in repr(client)
    assert "worker processes" in client.explain()


def test_a_client_changes_no_setting_but_what_it_is_given(process_streamers, clients):
    streamer = process_streamers(double, batch_size=7, policy="window")
    client = clients(streamer.address)
    client.configure(max_latency=0.01)
    stats = streamer.stats()
    assert (stats.policy, stats.batch_size, stats.max_latency) == ("window", 7, 0.01)


def test_what_belongs_to_the_owner_a_client_refuses(process_streamers, clients):
    client = clients(process_streamers(double).address)
    for call in (lambda: client.resize(2), client.restart):
        with pytest.raises(RuntimeError, match="only in the process"):
            call()


def test_closing_a_client_closes_nothing_else(process_streamers, clients):
    streamer = process_streamers(double)
    first, second = clients(streamer.address), clients(streamer.address)
    assert first.predict([1]) == second.predict([1]) == [2]
    first.close()
    with pytest.raises(StreamerClosed):
        first.predict([1])
    assert second.predict([1]) == streamer.predict([1]) == [2]


def test_batches_mix_the_requests_of_all_processes(process_streamers, clients, process_gate):
    streamer = process_streamers(process_gate, batch_size=4)
    first = streamer.submit(["first"])
    process_gate.wait_entered()
    others = [clients(streamer.address) for _ in range(3)]
    futures = [each.submit([i]) for i, each in enumerate([streamer, *others])]
    eventually(lambda: streamer.stats().queued_requests == 4)
    process_gate.open()
    assert first.result(LONG) == ["firstfirst"]
    assert [future.result(LONG) for future in futures] == [[0], [2], [4], [6]]
    assert streamer.stats().batch_sizes == {1: 1, 4: 1}


def test_a_client_is_told_what_went_wrong(process_streamers, clients):
    streamer = process_streamers(double, warmup=[None])  # 2 * None: it cannot be loaded
    client = clients(streamer.address, worker_timeout=LONG)
    with pytest.raises(WorkerInitError, match="NoneType"):
        client.predict([1])
    with pytest.raises(WorkerInitError, match="NoneType"):
        client.wait_ready(LONG)


def test_requests_of_a_client_can_be_cancelled_and_expire(process_streamers, clients, process_gate):
    streamer = process_streamers(process_gate, batch_size=1)
    client = clients(streamer.address)
    running = client.submit([1])
    process_gate.wait_entered()
    cancelled, late = client.submit([2]), client.submit([3], timeout=0.05)
    eventually(lambda: streamer.stats().queued_requests >= 1 and running.running())
    assert cancelled.cancel()
    assert not running.cancel()
    with pytest.raises(RequestTimeout):
        late.result(LONG)
    process_gate.open()
    assert running.result(LONG) == [2]
    assert process_gate.batches == [[1]]


def test_a_client_waits_for_an_owner_that_comes_later(process_streamers, clients, address):
    client = clients(address)
    future = client.submit([1])
    with pytest.raises(RequestTimeout):
        client.predict([2], timeout=0.1)
    process_streamers(double, address=address)
    assert future.result(LONG) == [2]


def test_an_owner_of_an_address_keeps_it(process_streamers, address):
    streamer = process_streamers(double, address=address)
    with pytest.raises(OSError, match=r"[Aa]ddress already in use"):
        process_streamers(double, address=address)
    assert streamer.predict([1]) == [2]


def test_what_the_owner_has_no_room_for_waits_at_its_client(
    process_streamers, clients, process_gate
):
    def predict(batch):
        return process_gate([len(item) for item in batch])

    streamer = process_streamers(predict, batch_size=1, max_queue=2)
    client = clients(streamer.address, max_queue=4, overflow="reject")
    futures = [client.submit(["first"])]
    process_gate.wait_entered()

    def full():
        try:
            futures.append(client.submit([30_000 * "x"]))
        except QueueFull:
            return True
        return False

    # Until it has come to rest: the client may be full because its requests are still on their way.
    eventually(lambda: full() and streamer.stats().submitted < len(futures))
    assert streamer.stats().queued_items <= 2
    assert len(futures) < 100  # those not submitted: in the client, and in the socket
    process_gate.open()
    assert [future.result(LONG) for future in futures[1:]] == [[60_000]] * (len(futures) - 1)


# ------------------------------------------------------------------------- forked


def test_forked_children_share_the_workers(process_streamers, child):
    done = child(
        PRELUDE
        + """
streamer = Streamer(Model, 8, worker_num=1, mp_start_method="fork", warmup=[1])
parent = streamer.predict([1])[0]["pid"]
children = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        seen = {streamer.predict([i])[0]["pid"] for i in range(100)}
        os._exit(0 if seen == {parent} else 1)
    children.append(pid)
print([os.waitpid(pid, 0)[1] for pid in children], streamer.stats().completed)
"""
    )
    assert done.stdout == "[0, 0, 0, 0] 401\n"


def test_a_child_that_does_not_use_it_starts_nothing(child):
    done = child(
        PRELUDE
        + """
streamer = Streamer(double, 8, mp_start_method="fork", wait_for_worker_ready=True)
pid = os.fork()
if pid == 0:
    threads = os.listdir("/proc/self/task")
    print(len(threads), sum("socket" in os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""
    )
    assert done.stdout == "1 0\n"


def test_the_death_of_the_owner_reaches_workers_past_a_child_that_lives(peers):
    owner = peers(
        """
        streamer = Streamer(double, 8, mp_start_method="fork", wait_for_worker_ready=True)
        worker = streamer.stats().worker_processes[0].pid
        pid = os.fork()
        if pid == 0:
            sys.stdin.readline()
            os._exit(0)
        print(worker, pid, flush=True)
        signal.pause()
        """
    )
    worker, child = map(int, owner.line().split())
    owner.kill()
    eventually(lambda: not is_alive(worker))
    assert is_alive(child)


def test_a_forked_child_is_told_at_once_that_its_owner_closes(child, tmp_path):
    done = child(
        PRELUDE
        + f"""
from waits import eventually

def refuses():
    try:
        streamer.submit([0])
    except StreamerClosed:
        return True
    return False

gate = ProcessGate({str(tmp_path)!r})
streamer = Streamer(gate, 1, mp_start_method="fork")
running = streamer.submit([1])
gate.wait_entered()
closed, tell_closed = os.pipe()
pid = os.fork()
if pid == 0:
    os.read(closed, 1)
    try:
        streamer.predict([2], timeout=LONG)
    except StreamerClosed:
        os._exit(0)
    os._exit(1)
closing = threading.Thread(target=streamer.close)
closing.start()
eventually(refuses)
os.write(tell_closed, b"x")
print(os.waitpid(pid, 0)[1])
gate.open()
closing.join()
print(running.result(LONG))
"""
    )
    assert done.stdout == "0\n[2]\n"


def test_a_forked_child_ends_whose_owner_has_gone(child):
    done = child(
        PRELUDE
        + """
streamer = Streamer(double, 8, mp_start_method="fork")
closed, tell_closed = os.pipe()
pid = os.fork()
if pid == 0:
    os.read(closed, 1)
    for call in (streamer.wait_ready, streamer.submit([1]).result, lambda: streamer.predict([2])):
        try:
            call()
        except StreamerClosed:
            print("closed", end=" ", flush=True)
    streamer.close()
    os._exit(0)
streamer.close()
os.write(tell_closed, b"x")
print(os.waitpid(pid, 0)[1])
"""
    )
    assert done.stdout == "closed closed closed 0\n"


# ------------------------------------------------------------------------- deaths


def test_a_client_killed_in_the_middle_frees_its_place(process_streamers, peers, process_gate):
    streamer = process_streamers(process_gate, batch_size=1)
    peer = peers(
        f"""
        client = Streamer.connect({streamer.address!r})
        futures = [client.submit([i]) for i in range(4)]
        print("asked", flush=True)
        signal.pause()
        """
    )
    assert peer.line() == "asked"
    process_gate.wait_entered()
    eventually(lambda: streamer.stats().queued_requests == 3)
    peer.kill()
    eventually(lambda: streamer.stats().queued_requests == 0)
    process_gate.open()
    assert streamer.predict(["next"], timeout=LONG) == ["nextnext"]
    assert process_gate.batches == [[0], ["next"]]


OWNER = """
gate = ProcessGate({folder!r})
gate.open() if {opened} else None
streamer = Streamer(gate, 1, mp_start_method="fork", address={address!r})
streamer.wait_ready()
print(streamer.stats().worker_processes[0].pid, flush=True)
signal.pause()
"""


@pytest.fixture
def owner(peers, tmp_path):
    """Runs a Streamer in another process; gives the process and the pid of its worker."""
    count = 0

    def make(address, opened=True):
        nonlocal count
        count += 1
        folder = tmp_path / f"owner{count}"
        folder.mkdir()
        peer = peers(OWNER.format(folder=str(folder), address=address, opened=opened))
        return peer, int(peer.line())

    return make


def test_an_owner_killed_with_clients_waiting_is_an_error_at_once(owner, clients, address):
    peer, worker = owner(address, opened=False)
    client = clients(address, worker_timeout=LONG)
    futures = [client.submit([i]) for i in range(3)]
    # Those that the owner does not have yet would wait for the next one.
    eventually(lambda: (client.stats().running_batches, client.stats().queued_requests) == (1, 2))
    peer.kill()
    for future in futures:
        assert isinstance(future.exception(LONG), WorkerLost)
    eventually(lambda: not is_alive(worker))


def test_a_client_survives_the_restart_of_its_owner(owner, clients, address):
    first, _ = owner(address)
    client = clients(address, worker_timeout=LONG)
    assert client.predict([1]) == [2]
    first.kill()
    first.wait()
    future = client.submit([2])
    owner(address)
    assert isinstance(future.exception(LONG), WorkerLost | None)
    assert client.predict([3], timeout=LONG) == [6]  # the client has noticed by now
