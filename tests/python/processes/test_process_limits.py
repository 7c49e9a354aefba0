"""Items as large as they come, and processes that have no descriptors or no memory left.

Each script uses up what its own process has, so it runs in one of its own.
"""

import pytest
from scripts import SUPPORT

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(230)]

PRELUDE = f"""
import os, resource, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
sys.path.insert(0, {SUPPORT!r})
from waits import eventually
from descriptors import *
from process_models import *
from service_streamer import *

def limit(kind, size):
    resource.setrlimit(kind, (size, resource.getrlimit(kind)[1]))

def ends(future):
    error = future.exception(LONG)
    assert error is None or isinstance(error, (StreamerError, OSError)), repr(error)
    return error is None
"""


@pytest.fixture
def script(child):
    def run(code):
        return child(PRELUDE + code, timeout=220).stdout

    return run


def needs_memory(gigabytes):
    with open("/proc/meminfo") as meminfo:
        available = next(int(line.split()[1]) for line in meminfo if line.startswith("MemAvail"))
    if available < gigabytes << 20:
        pytest.skip(f"needs {gigabytes} GB of memory")


# -------------------------------------------------------------------------- size


# A gigabyte in shared memory. Bytes are copied, and so is what travels in the message: less of it.
@pytest.mark.parametrize(
    ("kind", "file_size", "numbers"),
    [
        ("array", "RLIM_INFINITY", 2**27),
        ("bytes", "RLIM_INFINITY", 2**25),
        ("array", "2**20", 2**24),
        ("bytes", "2**20", 2**24),
    ],
    ids=["array-shared", "bytes-shared", "array-inline", "bytes-inline"],
)
def test_a_gigabyte_goes_there_and_back(script, kind, file_size, numbers):
    pytest.importorskip("numpy")
    needs_memory(8)
    code = f"""
import numpy
from resource import RLIM_INFINITY

limit(resource.RLIMIT_FSIZE, {file_size})
array = numpy.zeros({numbers})
array[:: 2**20] = range({numbers} >> 20)
item = array if {kind!r} == "array" else bytes(array.nbytes)
with Streamer(echo, 1, mp_start_method="fork", worker_timeout=None) as streamer:
    (answer,) = streamer.predict([item])
    assert type(answer) is type(item) and len(answer) == len(item)
    assert list(answer[:: 2**20]) == list(item[:: 2**20])
"""
    script(code)


# ------------------------------------------------------------------------ memory


def test_an_item_for_which_a_worker_has_no_memory_fails_alone(script):
    script("""
class Small(ManagedModel):
    def init_model(self):
        with open("/proc/self/statm") as statm:
            size = int(statm.read().split()[0]) * resource.getpagesize()
        limit(resource.RLIMIT_AS, size + 2**27)

    def predict(self, batch):
        return [len(item) for item in batch]

limit(resource.RLIMIT_FSIZE, 2**20)
with Streamer(
    Small, 3, max_latency=LONG, policy="window", mp_start_method="fork", retries=0
) as streamer:
    streamer.wait_ready(LONG)
    (worker,) = streamer.stats().worker_processes
    futures = [streamer.submit([bytes(size)]) for size in (1, 2**28, 2)]
    assert futures[0].result(LONG) == [1]
    assert futures[2].result(LONG) == [2]
    error = futures[1].exception(LONG)
    assert type(error) is MemoryError and "268,435," in str(error), repr(error)
    assert streamer.predict([b"", b"x", b"xx"], timeout=LONG) == [0, 1, 2]
    assert [each.pid for each in streamer.stats().worker_processes] == [worker.pid]
""")


# ------------------------------------------------------------------- descriptors


def test_an_owner_without_descriptors_whose_worker_dies_recovers(script):
    script("""
limit(resource.RLIMIT_NOFILE, 256)
with Streamer(double, 8, mp_start_method="fork") as streamer:
    assert streamer.predict([1]) == [2]
    (worker,) = streamer.stats().worker_processes
    taken = use_up()
    os.kill(worker.pid, signal.SIGKILL)
    for future in [streamer.submit([i], timeout=0.2) for i in range(4)]:
        ends(future)
    give_back(taken)
    eventually(lambda: ends(streamer.submit([1])))  # until a worker is there again it says so
    assert streamer.predict([2], timeout=LONG) == [4]
""")


def test_a_worker_without_descriptors_answers_or_says_so(script):
    pytest.importorskip("numpy")
    script("""
import numpy

limit(resource.RLIMIT_NOFILE, 256)
taken = []

def predict(batch):
    for item in batch:
        if isinstance(item, str):
            give_back(taken) if item == "give back" else taken.extend(use_up())
    return batch

with Streamer(predict, 4, mp_start_method="fork") as streamer:
    assert streamer.predict(["use up"]) == ["use up"]
    for future in [streamer.submit([numpy.full(100_000, i)]) for i in range(20)]:
        ends(future)
    assert streamer.predict(["give back"]) == ["give back"]
    (answer,) = streamer.predict([numpy.full(100_000, 7)])
    assert (answer == 7).all()
""")


def test_a_client_without_descriptors_says_so_and_works_later(script):
    script("""
limit(resource.RLIMIT_NOFILE, 256)
with Streamer(double, 8, mp_start_method="fork", wait_for_worker_ready=True) as streamer:
    pid = os.fork()
    if pid == 0:
        clients = [streamer, Streamer.connect(streamer.address)]
        taken = use_up()
        for client in clients:
            try:
                client.predict([1], timeout=0.2)
            except (StreamerError, OSError):
                pass
            else:
                os._exit(1)
        give_back(taken)
        answers = [client.predict([i], timeout=LONG) for i, client in enumerate(clients)]
        os._exit(0 if answers == [[0], [2]] else 2)
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    assert streamer.predict([3]) == [6]
""")
