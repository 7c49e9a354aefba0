"""Forked children of a Streamer's process."""

import pytest
from process_models import is_alive
from scripts import PRELUDE
from waits import eventually

pytest_plugins = ["peers"]
pytestmark = pytest.mark.slow


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


def test_a_large_result_that_was_not_read_before_the_fork_is_refused_in_the_child(child):
    done = child(
        PRELUDE
        + """
from waits import eventually

def large(batch):
    return [bytearray([item]) * 300_000 for item in batch]

streamer = Streamer(large, 8, mp_start_method="fork")
future = streamer.submit([1])
eventually(future.done)
pid = os.fork()
if pid == 0:
    for _ in range(100):  # the closed descriptors have other files now
        os.open("/dev/zero", os.O_RDWR)
    try:
        future.result()
    except SerializationError as error:
        print("fork" in str(error), streamer.predict([2]) == [bytes([2]) * 300_000], flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print(future.result() == [bytes([1]) * 300_000])
"""
    )
    assert done.stdout == "True True\nTrue\n"


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


def test_a_forked_child_learns_at_once_that_its_owner_closes(child, tmp_path):
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
