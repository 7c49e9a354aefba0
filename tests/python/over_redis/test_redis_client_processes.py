"""RedisStreamer in forked children, at the end of the interpreter, in patched processes."""

import os

import pytest
from waits import LONG

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER

pytest_plugins = ["redis_fixtures"]
pytestmark = NEEDS_SERVER


@pytest.mark.usefixtures("worker")
def test_a_streamer_made_before_a_fork_works_in_every_child(make):
    streamer = make()
    assert streamer.predict([1]) == [2]
    pids = []
    for i in range(3):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = 0 if streamer.predict([i, i]) == [2 * i, 2 * i] else 2
                streamer.close()
            finally:
                os._exit(code)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0, 0]
    assert streamer.predict([2]) == [4]


EXIT = """
import sys, threading
from service_streamer import RedisStreamer
streamer = RedisStreamer(sys.argv[1], sys.argv[2])
{what}
"""


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    "what",
    [
        "",
        "streamer.predict([1])",
        "streamer.predict([1]); streamer.close()",
        "with streamer: streamer.predict([1])",
        "futures = [streamer.submit([i]) for i in range(1000)]",
        "streamer.predict([1]); del streamer",
        "threading.Thread(target=lambda: [streamer.predict([1]) for _ in iter(int, 1)], "
        "daemon=True).start(); streamer.predict([1])",
        "broken = RedisStreamer('127.0.0.1:1'); broken.submit([1])",
        "lost = RedisStreamer(sys.argv[1], 'nobody'); lost.submit([1]); streamer.predict([1])",
    ],
)
def test_the_interpreter_ends(what, server, prefix, child):
    done = child(EXIT.format(what=what), server.address, prefix)
    assert done.timing < LONG


GEVENT = """
from gevent import monkey; monkey.patch_all()
import gevent, sys, time
from service_streamer import RedisStreamer
streamer = RedisStreamer(sys.argv[1], sys.argv[2])
ticks = []

def tick():
    while True:
        ticks.append(time.monotonic())
        gevent.sleep(0.005)

ticker = gevent.spawn(tick)
streamer.wait_ready(30)
jobs = [gevent.spawn(lambda i=i: [streamer.predict([i, n]) for n in range(20)]) for i in range(50)]
gevent.joinall(jobs, raise_error=True)
for i, job in enumerate(jobs):
    assert job.value == [[2 * i, 2 * n] for n in range(20)], job.value
print(streamer.stats().completed)
streamer.close()
ticker.kill()
"""


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("kind", ["address", "unix"])
def test_greenlets_of_a_patched_process(kind, server, prefix, child):
    pytest.importorskip("gevent")
    address = server.address if kind == "address" else f"unix://{server.unix_socket}"
    done = child(GEVENT, address, prefix)
    assert done.stdout == "1000\n"


@pytest.mark.usefixtures("worker")
def test_a_fork_of_a_patched_process(server, prefix, child):
    pytest.importorskip("gevent")
    done = child(
        """
        from gevent import monkey; monkey.patch_all()
        import os, sys
        from service_streamer import RedisStreamer
        streamer = RedisStreamer(sys.argv[1], sys.argv[2])
        assert streamer.predict([1]) == [2]
        pid = os.fork()
        if pid == 0:
            assert streamer.predict([2]) == [4]
            streamer.close()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert streamer.predict([3]) == [6]
        print("done")
        """,
        server.address,
        prefix,
    )
    assert done.stdout == "done\n"
