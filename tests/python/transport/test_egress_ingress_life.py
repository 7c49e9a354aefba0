"""The interpreter ends, forks or is interrupted around BrokerEgress and BrokerIngress."""

import pytest
from broker_bodies import __file__ as helpers
from waits import LONG

pytestmark = pytest.mark.slow

PRELUDE = f"""
import gc, os, pickle, signal, struct, sys, threading, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads: that is what is tested
sys.path.insert(0, {str(helpers.rpartition("/")[0])!r})
from broker_bodies import *
from remote import LONG, RemoteEngine
from service_streamer import *
from service_streamer import _core

def double(batch):
    return [2 * item for item in batch]

def daemon(function, *args):
    def run():
        try: function(*args)
        except NameError: pass  # the object was deleted
    threading.Thread(target=run, daemon=True).start()

def asleep():
    with open(f"/proc/self/task/{{os.getpid()}}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "S"
"""

SCENES = {
    "an idle thread in take": "daemon(client.egress.take, PLENTY, None)\n"
    "daemon(ingress.take, None)",
    "threads that take and time out": """
def take(function, *args):
    while function(*args) is not None: pass
daemon(take, client.egress.take, PLENTY, 0.0001)
daemon(take, ingress.take, 0.0001)
time.sleep(0.1)
""",
    "what is out": "client.submit([1]); client.take(); ingress.submit(1, request(1), None, 0)",
    "what is out, and a thread that waits for it": """
futures = [client.submit([i], 50) for i in range(10)]
client.take()
for future in futures: daemon(future.exception)
ingress.submit(1, request(1), None, 0)
daemon(client.egress.take, PLENTY, None)
""",
    "load": """
def send():
    number = 0
    while (taken := client.egress.take(PLENTY, LONG)) is not None:
        for id, begin, items, deadline, priority, body in taken[0]:
            number += 1
            keys[number] = id, begin, items
            ingress.submit(number, body, deadline, priority)
def reply():
    while (ended := ingress.take(LONG)) is not None:
        client.egress.answer([(*keys.pop(number), body) for number, body in ended])
def call():
    while True: client.predict([1, 2])
keys = {}
for function in (send, reply, call, call, call, call): daemon(function)
time.sleep(0.3)
""",
}


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("ending", ["", "del client, ingress, owner"])
def test_the_interpreter_ends(child, scene, ending):
    made = """
client = Client()
owner = RemoteEngine(double, inline=True)
ingress = _core.BrokerIngress(owner.server)
"""
    done = child(PRELUDE + made + SCENES[scene] + "\n" + ending)
    for word in ("Fatal", "terminate", "Segmentation", "Exception ignored", "Error"):
        assert word not in done.stderr.replace("StreamerClosed", "")
    assert done.timing < LONG


TAKES = {
    "egress": "one = Client(); take = lambda: one.egress.take(PLENTY, None)",
    "ingress": """
owner = RemoteEngine(double, inline=True)
one = _core.BrokerIngress(owner.server)
take = lambda: one.take(None)
""",
}


@pytest.mark.parametrize("which", TAKES)
def test_ctrl_c_ends_take(child, which):
    done = child(
        PRELUDE
        + TAKES[which]
        + """
calling = threading.Event()

def interrupt():
    calling.wait()
    times = 0
    while times < 20:
        times = times + 1 if asleep() else 0
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)

daemon(interrupt)
try:
    calling.set()
    take()
except KeyboardInterrupt:
    print("interrupted")
"""
    )
    assert done.stdout == "interrupted\n"


@pytest.mark.parametrize("which", TAKES)
def test_a_signal_handler_that_does_not_raise_is_not_an_end(child, which):
    done = child(
        PRELUDE
        + TAKES[which]
        + """
handled = []
def handler(number, frame):
    handled.append(number)
    if len(handled) == 3:
        signal.setitimer(signal.ITIMER_REAL, 0)
        getattr(one, "egress", one).interrupt()
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
print(take())
"""
    )
    assert done.stdout in ("([], [])\n", "[]\n")


def test_a_forked_child_leaves_them_alone(child):
    done = child(
        PRELUDE
        + """
client = Client()
owner = RemoteEngine(double, inline=True)
ingress = _core.BrokerIngress(owner.server)
future = client.submit([1, 2])
chunk = client.take_one()
ingress.submit(1, chunk[-1], None, 0)
daemon(client.egress.take, PLENTY, None)

pid = os.fork()
if pid == 0:
    status = 1
    try:
        refused = 0
        egress = client.egress
        for call in (
            lambda: egress.take(1, 0),
            lambda: egress.answer([]),
            lambda: egress.lose([1], "x"),
            lambda: egress.fail(1, b""),
            lambda: egress.chunks([1]),
            egress.in_flight,
            egress.interrupt,
            egress.stop,
            lambda: ingress.submit(2, chunk[-1], None, 0),
            lambda: ingress.cancel([1]),
            lambda: ingress.take(0),
            ingress.interrupt,
            ingress.stop,
            lambda: future.result(5),
        ):
            try: call()
            except StreamerClosed: refused += 1
        assert refused == 14, refused
        del call, egress, ingress, client, owner, future
        gc.collect()
        other = Client()
        other.submit([3])
        assert items_of(other.take_one()) == [3]
        other.close()
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "the child failed"
((_, body),) = ingress.take(LONG)
client.egress.answer([(*chunk[:3], body)])
print(future.result(LONG))
"""
    )
    assert done.stdout == "[2, 4]\n"


RESIDUE = """
def rss():
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

def check(unlucky):
    unlucky(20_000)
    before = rss()
    for _ in range(10):
        unlucky(10_000)
    assert rss() - before < 5, f"{rss() - before:.1f} MB more"
    print("clean")

client = Client(max_queue=10**6)
egress = client.egress
answer = result_of(["x"])

def submitted(n):
    return [client.submit([i]) for i in range(n)], [chunk[0] for chunk in client.take()]

def settle():
    while client.egress.take(PLENTY, 0) != ([], []): pass
    assert egress.in_flight() == 0
    stats = client.engine.stats()
    assert stats["queued_items"] == stats["running_batches"] == 0
"""

KINDS = {
    "answered": """
def unlucky(n):
    futures, ids = submitted(n)
    assert egress.answer([(id, 0, 1, answer) for id in ids]) == n
    for future in futures: assert future.result() == ["x"]
    settle()
""",
    "cancelled when they were out": """
def unlucky(n):
    futures, ids = submitted(n)
    for future in futures: assert future.cancel()
    assert client.cancelled() == ids
    settle()
""",
    "lost": """
def unlucky(n):
    futures, ids = submitted(n)
    egress.lose(ids, "lost")
    for future in futures: assert isinstance(future.exception(), WorkerLost)
    settle()
""",
    "that came in and were answered": """
owner = RemoteEngine(double, inline=True, batch_size=1000)
ingress = _core.BrokerIngress(owner.server)
def unlucky(n):
    for i in range(n): ingress.submit(i, request_of_1, None, 0)
    ended = 0
    while ended < n: ended += len(ingress.take(LONG))
request_of_1 = request(1)
""",
    "that came in and were cancelled": """
owner = RemoteEngine(double, inline=True, workers=0)
ingress = _core.BrokerIngress(owner.server)
def unlucky(n):
    for i in range(n): ingress.submit(i, request_of_1, None, 0)
    ingress.cancel(list(range(n)))
    ended = 0
    while ended < n: ended += len(ingress.take(LONG))
request_of_1 = request(1)
""",
}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_of_100_000_requests(child, kind):
    done = child(PRELUDE + RESIDUE + KINDS[kind] + "check(unlucky)\n", timeout=300)
    assert "clean" in done.stdout
