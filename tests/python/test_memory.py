"""Nothing stays behind: 100,000 requests of each unlucky kind, and the memory is where it was."""

import pytest

PRELUDE = """
import gc, os, threading
from service_streamer import *

def rss():
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

go = threading.Event()
held = []

def predict(batch):
    go.wait(60)
    return batch

def check(unlucky, streamer):
    unlucky(20_000)
    before = rss()
    for _ in range(10):
        unlucky(10_000)
    after = rss()
    go.set()
    for future in held: future.result(60)
    assert streamer.predict([1], timeout=60) == [1]
    assert after - before < 5, f"{after - before:.1f} MB more"
    stats = streamer.stats()
    assert stats.queued_items == stats.waiting_requests == 0
    print("clean")
"""

KINDS = {
    "abandoned": """
go.set()
streamer = ThreadedStreamer(predict, 64, max_queue=10**6)
def unlucky(n):
    for i in range(n): streamer.submit([i])
    streamer.predict([0], priority=-1)
""",
    "timed out in the queue": """
streamer = ThreadedStreamer(predict, 64, max_queue=10**6)
streamer.submit([0])
def unlucky(n):
    futures = [streamer.submit([i], timeout=0.001) for i in range(n)]
    for future in futures: assert isinstance(future.exception(), RequestTimeout)
""",
    "timed out by predict": """
streamer = ThreadedStreamer(predict, 64)
streamer.submit([0])
def unlucky(n):
    for i in range(n):
        try: streamer.predict([i], timeout=0)
        except RequestTimeout: pass
        else: raise AssertionError("answered")
""",
    "cancelled": """
streamer = ThreadedStreamer(predict, 64)
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
streamer = ThreadedStreamer(fail, 64, isolate_errors=False, max_queue=10**6)
def unlucky(n):
    futures = [streamer.submit([0]) for i in range(n)]
    for future in futures: assert isinstance(future.exception(), ValueError)
""",
    "rejected": """
streamer = ThreadedStreamer(predict, 1, max_queue=1, overflow="reject")
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
streamer = ThreadedStreamer(predict, 64)
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
streamer = ThreadedStreamer(predict, 64)
def unlucky(n):
    for i in range(n): assert streamer.predict([]) == []; streamer.submit([])
""",
}


@pytest.mark.parametrize("kind", KINDS)
def test_requests_leave_no_memory_behind(child, kind):
    code = PRELUDE + KINDS[kind] + "\ncheck(unlucky, streamer)\n"
    assert child(code, timeout=110).stdout == "clean\n"
