"""Nothing stays behind: 100,000 requests of each unlucky kind, and the memory is where it was.

That of the workers, too, where they are processes.
"""

import pytest
from scripts import EVENT, MAKE

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(230)]  # a minute on a busy machine

PRELUDE = (
    EVENT
    + """
import gc, threading
from service_streamer import *

def open_files(pid):
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try: yield os.readlink(f"/proc/{pid}/fd/{fd}")
        except FileNotFoundError: pass  # that of the list itself

def kept(streamer):
    # megabytes that are not shared, and descriptors; blocks of shared memory are used again
    gc.collect()
    kilobytes = descriptors = 0
    for pid in (os.getpid(), *(worker.pid for worker in streamer.stats().worker_processes)):
        with open(f"/proc/{pid}/status") as file:
            status = dict(line.split(":", 1) for line in file)
        kilobytes += int(status["VmRSS"].split()[0]) - int(status["RssShmem"].split()[0])
        names = list(open_files(pid))
        blocks = [name for name in names if name.startswith("/memfd:service_streamer")]
        assert len(blocks) <= 220, f"{len(blocks)} blocks"  # 200 were in use at a time
        descriptors += len(names) - len(blocks)
    return kilobytes / 1024, descriptors

go = Event()
held = []

def predict(batch):
    go.wait()
    return batch

def check(unlucky, streamer):
    unlucky(20_000)
    before, descriptors_before = kept(streamer)
    for _ in range(10):
        unlucky(10_000)
    after, descriptors_after = kept(streamer)
    go.set()
    for future in held: future.result(60)
    assert streamer.predict([1], timeout=60) == [1]
    assert after - before < 5, f"{after - before:.1f} MB more"
    # one thread calls, so the pool of waiters with an eventfd has one at most
    assert descriptors_after <= descriptors_before + 1
    stats = streamer.stats()
    assert stats.queued_items == stats.waiting_requests == 0
    print("clean")
"""
)


KINDS = {
    "abandoned": """
streamer = make(predict, 64, max_queue=10**6)
def unlucky(n):  # all of them wait at a time, however fast the worker is
    for i in range(n): streamer.submit([i])
    go.set()
    streamer.predict([0], timeout=60, priority=-1)
    go.clear()
""",
    "timed out in the queue": """
streamer = make(predict, 64, max_queue=10**6)
streamer.submit([0])
def unlucky(n):
    futures = [streamer.submit([i], timeout=0.001) for i in range(n)]
    for future in futures: assert isinstance(future.exception(), RequestTimeout)
""",
    "timed out by predict": """
streamer = make(predict, 64)
streamer.submit([0])
def unlucky(n):
    for i in range(n):
        try: streamer.predict([i], timeout=0)
        except RequestTimeout: pass
        else: raise AssertionError("answered")
""",
    "cancelled": """
streamer = make(predict, 64)
streamer.submit([0])
while streamer.stats().running_items == 0: pass
def unlucky(n):
    for i in range(n): assert streamer.submit([i]).cancel()
""",
    "failed": """
go.set()
def fail(batch):
    if 1 in batch: return batch
    raise ValueError("no")
streamer = make(fail, 64, isolate_errors=False, max_queue=10**6)
def unlucky(n):
    futures = [streamer.submit([0]) for i in range(n)]
    for future in futures: assert isinstance(future.exception(), ValueError)
""",
    "rejected": """
streamer = make(predict, 1, max_queue=1, overflow="reject")
streamer.submit([0])
while streamer.stats().running_items == 0: pass
held.append(streamer.submit([0]))
def unlucky(n):
    for i in range(n):
        try: streamer.submit([i])
        except QueueFull: pass
        else: raise AssertionError("accepted")
""",
    "cancelled tasks": """
import asyncio
streamer = make(predict, 64)
streamer.submit([0])
async def main(n):
    for _ in range(n // 100):
        tasks = [asyncio.ensure_future(streamer.apredict([i])) for i in range(100)]
        await asyncio.sleep(0)
        for task in tasks: task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
def unlucky(n): asyncio.run(main(n))
""",
    "empty": """
go.set()
streamer = make(predict, 64)
def unlucky(n):
    for i in range(n): assert streamer.predict([]) == []; streamer.submit([])
""",
}


@pytest.mark.parametrize("kind", KINDS)
def test_requests_leave_no_memory_behind(child, backend, kind):
    code = PRELUDE + MAKE[backend] + KINDS[kind] + "\ncheck(unlucky, streamer)\n"
    assert child(code, timeout=220).stdout == "clean\n"


ARRAYS = {
    "answered": """
def unlucky(n):
    for i in range(n // 100): assert streamer.predict([array])[0].sum() == array.size
""",
    "kept for a while": """
def unlucky(n):
    outputs = [streamer.predict([array])[0] for i in range(n // 100)]
    assert all(output.sum() == array.size for output in outputs)
""",
    "abandoned": """
def unlucky(n):
    for i in range(n // 100): streamer.submit([array, i])
    streamer.predict([array])
""",
    "cancelled": """
def unlucky(n):
    for i in range(n // 100): streamer.submit([array]).cancel()
    streamer.predict([array])
""",
    "timed out": """
def unlucky(n):
    futures = [streamer.submit([array], timeout=0.001) for i in range(n // 100)]
    for future in futures: future.exception()
    streamer.predict([array])
""",
    "not to be pickled": """
def unlucky(n):
    for i in range(n // 100):
        try: streamer.submit([array, lambda: array])
        except SerializationError: pass
        else: raise AssertionError("accepted")
""",
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_large_arrays_leave_no_memory_behind(child, kind):
    """A hundredth as many; what the pools of shared memory keep is bounded, and used again."""
    pytest.importorskip("numpy")
    code = """
import numpy
array = numpy.ones(100_000)
streamer = make(lambda batch: batch, 16)
"""
    code = PRELUDE + MAKE["processes"] + code + ARRAYS[kind] + "\ncheck(unlucky, streamer)\n"
    assert child(code, timeout=220).stdout == "clean\n"
