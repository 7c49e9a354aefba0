"""The interpreter ends: with its exit code, in time, whatever the streamer is doing."""

import signal

import pytest
from scripts import ALONE, EVENT, MAKE

pytestmark = pytest.mark.every_python

# What the interpreter must not wait for takes minutes. Its start and its end may take 2 s or, on a
# busy machine, many more.
IN_TIME = 100  # s

PRELUDE = (
    EVENT
    + ALONE
    + """
import signal, sys, threading, time
from service_streamer import *

entered = Event()

def double(batch):
    return [2 * item for item in batch]

def stuck(batch):
    entered.set()
    time.sleep(600)
    return batch

def half_a_second(batch):
    entered.set()
    time.sleep(0.5)
    return batch

def daemon(function, *args):
    def run():
        try: function(*args)
        except StreamerClosed: pass
    threading.Thread(target=run, daemon=True).start()
"""
)


@pytest.fixture
def run(child, backend):
    return lambda code, **options: child(PRELUDE + MAKE[backend] + code, **options)


SCENES = {
    "unused": "streamer = make(double, 8)",
    "idle": "streamer = make(double, 8); streamer.predict([1])",
    "timer": "streamer = make(double, 8); streamer.submit([1], timeout=500).result()",
    "closed": "streamer = make(double, 8); streamer.predict([1]); streamer.close()",
    "with": "with make(double, 8) as streamer: streamer.predict([1])",
    "deleted": "streamer = make(double, 8); streamer.predict([1]); del streamer",
    "forgotten": "[make(double, 8).submit([i]) for i in range(50)]",
    "backlog": """
streamer = make(half_a_second, 1)
futures = [streamer.submit([i]) for i in range(1000)]
entered.wait()
""",
    "backlog abandoned": """
streamer = make(half_a_second, 1)
for i in range(1000): streamer.submit([i])
entered.wait()
""",
    "forgotten backlog": """
streamer = make(half_a_second, 1)
for i in range(1000): streamer.submit([i])
entered.wait()
del streamer
""",
    "daemon callers": """
streamer = make(half_a_second, 2)
for i in range(50): daemon(streamer.predict, [i])
future = streamer.submit([1])
for i in range(10): daemon(future.result)
entered.wait()
""",
    "lone daemon caller": """
streamer = make(half_a_second, 2)
streamer.wait_ready()
wait_to_be_alone()
daemon(streamer.predict, [1])
entered.wait()
""",
    "daemon callers under load": """
streamer = make(double, 8)
def client():
    while True: streamer.predict([1, 2])
for _ in range(16): daemon(client)
time.sleep(0.2)
""",
    "futures under load": """
streamer = make(double, 8, max_queue=100)
def client():
    while True: streamer.submit([1, 2]).add_done_callback(lambda f: f.result())
for _ in range(4): daemon(client)
time.sleep(0.2)
""",
    "blocked for room": """
streamer = make(half_a_second, 1, max_queue=1)
for i in range(10): daemon(streamer.submit, [i])
entered.wait()
""",
    "non-daemon caller": """
streamer = make(half_a_second, 1)
def client():
    for i in range(2): assert streamer.predict([i]) == [i]
    print("answered", flush=True)
threading.Thread(target=client).start()
""",
    "executor": """
import concurrent.futures
streamer = make(half_a_second, 1)
pool = concurrent.futures.ThreadPoolExecutor(2)
jobs = [pool.submit(streamer.predict, [i]) for i in range(2)]
""",
    "asyncio": """
import asyncio
streamer = make(half_a_second, 1)
async def main():
    tasks = [asyncio.ensure_future(streamer.apredict([i])) for i in range(10)]
    await tasks[0]
asyncio.run(main())
""",
    "asyncio in a daemon thread": """
import asyncio
streamer = make(half_a_second, 1)
async def main():
    await asyncio.gather(*(streamer.apredict([i]) for i in range(1000)))
daemon(asyncio.run, main())
entered.wait()
""",
    "generator": """
streamer = make(double, 2)
iterator = streamer.map(range(1000))
next(iterator)
""",
    "callbacks": """
streamer = make(half_a_second, 1)
futures = [streamer.submit([i]) for i in range(1000)]
for future in futures: future.add_done_callback(lambda f: streamer.close())
entered.wait()
""",
}


BUSY = ("idle", "backlog", "callbacks")


@pytest.mark.parametrize(
    ("scene", "ending"),
    [
        *((scene, "") for scene in SCENES),
        *(
            (scene, end)
            for scene in BUSY
            for end in ("sys.exit(3)", "raise LookupError('the end')")
        ),
    ],
)
def test_the_interpreter_ends_with_its_exit_code(run, scene, ending):
    done = run(SCENES[scene] + "\n" + ending, check=False)
    assert done.returncode == {"": 0, "sys.exit(3)": 3}.get(ending, 1), done.stderr
    for word in ("Fatal", "terminate", "Segmentation", "Exception ignored", "core dumped"):
        assert word not in done.stderr
    if not ending:
        assert "Error" not in done.stderr
        assert done.stdout == ("answered\n" if scene == "non-daemon caller" else "")
    assert done.timing < IN_TIME  # it is 1 to 2 s on a quiet machine


GIVE_UP_SOON = "from service_streamer._engine import lifecycle; lifecycle.EXIT_WAIT = 0.5"


@pytest.mark.parametrize(
    "callers",
    [
        "streamer.submit([1])",
        "daemon(streamer.predict, [1])",
        "future = streamer.submit([1]); [daemon(future.result) for _ in range(5)]",
        "for i in range(100): streamer.submit([i], timeout=500)",
    ],
)
def test_a_model_that_does_not_return_is_given_up(run, callers):
    code = f"streamer = make(stuck, 8)\n{callers}\nentered.wait()\n"
    if callers != "streamer.submit([1])":  # one of them waits for the default, 4 s
        code = f"{GIVE_UP_SOON}\n{code}"
    done = run(code, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.timing < IN_TIME  # it is 5 s on a quiet machine


def test_a_running_batch_may_end_and_queued_work_does_not_start(run):
    done = run(
        """
from service_streamer._engine import lifecycle
lifecycle.EXIT_WAIT = 60  # the batch is not given up on a busy machine
refused = Event()

def predict(batch):
    entered.set()
    refused.wait()  # at the exit
    print("ran", batch, flush=True)
    return batch

def tell(future):
    error = future.exception()
    print(type(error).__name__ if error else future.result(), flush=True)
    if error: refused.set()

streamer = make(predict, 1)
futures = [streamer.submit([i]) for i in range(2)]
for future in futures: future.add_done_callback(tell)
entered.wait()
"""
    )
    assert sorted(done.stdout.splitlines()) == sorted(["ran [0]", "[0]", "StreamerClosed"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_the_process(run, number):
    code = SCENES["backlog"] + f"os.kill(os.getpid(), {int(number)})\nstreamer.predict([1])"
    done = run(code, check=False)
    assert done.returncode == -number
    assert done.timing < IN_TIME


def test_exit_in_a_request_handler_of_a_signal(run):
    done = run(
        """
streamer = make(half_a_second, 1)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
while True: streamer.predict([1])
""",
        check=False,
    )
    assert done.returncode == 7, done.stderr


def test_a_streamer_made_during_exit(run):
    done = run(
        """
import atexit

def late():
    try:
        print(make(double, 8).predict([1], timeout=5), flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)

atexit.register(late)
make(double, 8).predict([1])
""",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("attempt", [0, 1, 3])
def test_answers_that_arrive_while_the_interpreter_ends(run, attempt):
    done = run(
        f"""
def predict(batch):
    entered.set()
    time.sleep(0.01 * {attempt})
    return batch

streamers = [make(predict, 4) for _ in range(4)]
def client(streamer):
    while True:
        try: streamer.predict([1])
        except StreamerClosed: pass
for streamer in streamers:
    for _ in range(8): daemon(client, streamer)
entered.wait()
""",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.timing < IN_TIME
