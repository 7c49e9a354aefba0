"""Models, streamers and child interpreters for the tests.

No test sleeps to wait for something: models block on events (`Gate`), and what only the streamer
knows is observed in its statistics (`eventually`).

A test that uses `streamers`, `held` or `gate` runs with a ThreadedStreamer and with a Streamer
whose worker is a forked process; ``make test-redis`` runs it with a RedisStreamer whose worker has
a forked process. One whose model shares objects with the test is marked ``in_process`` and runs
with the first only; one that is about what happens between the callers and the worker of one
machine is marked ``not_redis``. A test of a promise that any back end keeps is marked ``outside``:
it runs with the one of examples/extend, too.
"""

import asyncio
import os
import signal
import threading

import hypothesis
import pytest
from gpus import demand_gpu, sees_gpu
from making import drop, made_by
from portable import PORTABLE
from ports import reserve_port
from process_models import Journal, ProcessGate, echo
from scripts import SUPPORT, run_python
from thread_models import Gate, Log, double
from waits import LONG, Threads

import service_streamer
from service_streamer import Streamer, ThreadedStreamer

# A job that a shell runs in the background ignores Ctrl-C, and so would all child interpreters.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Ray and ONNX Runtime send no usage statistics of the tests.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

# No example may be refused for the time that it took: a machine that tests may be busy.
hypothesis.settings.register_profile(
    "busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("busy")


@pytest.fixture
def threads():
    return Threads()


@pytest.fixture
def started():
    """Python's threads of a name that have come since the test began, and are there."""
    before = threading.enumerate()

    def started(name):
        return [each for each in threading.enumerate() if each.name == name and each not in before]

    return started


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    """Skip what a build for other systems than Linux refuses, or lacks, here or in a child."""
    try:
        return (yield)
    except BaseException as error:  # a failed pytest.warns() has the refusal as its context
        text = f"{error}{error.__context__}"
        no_proc = "'/proc/" in text and not os.path.exists("/proc/self")
        if PORTABLE and (no_proc or "needs what only Linux has" in text):
            pytest.skip("needs Linux")
        raise


pytest_fixture_setup = pytest_runtest_call


def pytest_generate_tests(metafunc):
    if "backend" in metafunc.fixturenames:
        in_process = metafunc.definition.get_closest_marker("in_process")
        kinds = ["threads"] if in_process or PORTABLE else ["threads", "processes"]
        not_redis = metafunc.definition.get_closest_marker("not_redis")
        if "streamers" in metafunc.fixturenames and len(kinds) > 1 and not not_redis:
            kinds.append(pytest.param("redis", marks=pytest.mark.over_redis))
        if metafunc.definition.get_closest_marker("outside"):
            kinds.append("outside")
        metafunc.parametrize("backend", kinds, indirect=True)


@pytest.fixture
def backend(request):
    """What the model runs in."""
    return request.param


@pytest.fixture
def leftovers():
    """What to do after the streamers were closed."""
    functions = []
    yield functions
    for function in functions:
        function()


@pytest.fixture
def gate(backend, leftovers, tmp_path):
    if backend == "threads":
        gate = Gate()
        yield gate
        gate.open()
    else:
        gate = ProcessGate(tmp_path)
        leftovers.append(gate.close)
        yield gate
        gate.open()


@pytest.fixture
def journal(backend, tmp_path):
    """Where a model leaves entries for the test: `append(entry)` there, `all()` here."""
    if backend == "threads":
        yield Log()
    else:
        journal = Journal(tmp_path)
        yield journal
        journal.close()


@pytest.fixture(scope="session")
def shared_redis_server():
    """A server for many tests, each of which has a prefix of its own."""
    pytest.importorskip("redis")
    from redis_server import RedisServer, find_server

    if find_server() is None:
        pytest.skip("no Redis server")
    server = RedisServer()
    yield server
    server.close()


@pytest.fixture
def redis_server(shared_redis_server):
    """A server whose clients, settings and data are the test's own."""
    from redis_server import RedisServer

    server = RedisServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def ray_cluster():
    """A Ray cluster of this machine for many tests. This process is connected to it."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    # All streamers of a run find a place, and a node that has died is noticed within 2 s, not 15 s.
    health = {"health_check_period_ms": 500, "health_check_failure_threshold": 3}
    node = {"num_cpus": 8, "include_dashboard": False, "_system_config": health}
    with pytest.MonkeyPatch.context() as patch:
        # Actors inherit it. With a `runtime_env`, none of the processes that Ray keeps would do.
        patch.setenv("PYTHONPATH", SUPPORT)
        cluster = Cluster(initialize_head=True, head_node_args=node)
        ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
        yield cluster
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def ray_address(ray_cluster, monkeypatch):
    """The address of a Ray cluster, which programs that a test starts find, too."""
    monkeypatch.setenv("RAY_ADDRESS", ray_cluster.address)
    return ray_cluster.address


@pytest.fixture
def streamers(request, backend, leftovers):
    """Makes streamers and closes them after the test."""
    made = []
    pairs = []

    def make_over_redis(*args, **kwargs):
        from redis_backend import RedisPair

        server = request.getfixturevalue("shared_redis_server")
        pairs.append(RedisPair(server, *args, **kwargs))
        return pairs[-1].streamer

    def make(predict=double, batch_size=8, *args, **kwargs):
        if backend == "redis":
            return make_over_redis(predict, batch_size, *args, **kwargs)
        elif backend == "outside":
            from outside import Outside

            pairs.append(Outside(predict, batch_size, *args, **kwargs))
            return pairs[-1].streamer
        elif backend == "threads":
            streamer = ThreadedStreamer(predict, batch_size, *args, **kwargs)
        else:
            kwargs.setdefault("mp_start_method", "fork")
            streamer = Streamer(predict, batch_size, *args, **kwargs)
        made.append(streamer)
        return streamer

    yield make
    for streamer in made:
        streamer.close(drain=False, timeout=LONG)
    for pair in pairs:
        pair.close()


@pytest.fixture
def process_streamers(leftovers):
    """Makes Streamers, for tests that are about processes, and closes them after the test."""

    def make(model=echo, batch_size=8, **kwargs):
        kwargs.setdefault("mp_start_method", "fork")
        return Streamer(model, batch_size, **kwargs)

    yield from made_by(make, drop)


@pytest.fixture
def process_gate(tmp_path, leftovers):
    gate = ProcessGate(tmp_path)
    leftovers.append(gate.close)
    yield gate
    gate.open()


@pytest.fixture
def process_journal(tmp_path):
    journal = Journal(tmp_path)
    yield journal
    journal.close()


@pytest.hookimpl(tryfirst=True)  # before -m is looked at
def pytest_collection_modifyitems(items):
    """What starts interpreters or Redis servers is slow."""
    starting = {"child", "program", "cluster", "redis_server", "servers"}
    for item in items:
        if not starting.isdisjoint(item.fixturenames):
            item.add_marker(pytest.mark.slow)


def pytest_runtest_setup(item):
    if item.get_closest_marker("needs_cuda"):
        demand_gpu(sees_gpu(), os.environ.get("SERVICE_STREAMER_EXPECT_CUDA"))


@pytest.fixture(scope="session")
def torch():
    torch = pytest.importorskip("torch")
    # More are kept in a pool, which a forked worker does not have: it would wait for them.
    torch.set_num_threads(1)
    return torch


@pytest.fixture
def held(streamers, gate):
    """A streamer whose model is busy with the item "first" until `gate.open()`."""

    def make(*args, **kwargs):
        streamer = streamers(gate, *args, **kwargs)
        first = streamer.submit(["first"])
        gate.wait_entered()
        streamer.first = first
        return streamer

    return make


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    """Runs a coroutine to its end in a loop of its own."""
    new_loop = asyncio.new_event_loop
    if request.param == "uvloop":
        new_loop = pytest.importorskip("uvloop").new_event_loop

    def run(main):
        loop = new_loop()
        try:
            return loop.run_until_complete(asyncio.wait_for(main, LONG))
        finally:
            loop.close()

    return run


@pytest.fixture
def port():
    """A free port that is kept from all others."""
    with reserve_port() as keeper:
        yield keeper.getsockname()[1]


@pytest.fixture
def program(tmp_path):
    """`run_python`, for programs that spawned workers can import."""

    def run(code, *arguments, **options):
        return run_python(code, *arguments, file=tmp_path / "program.py", **options)

    return run


@pytest.fixture(scope="session")
def child():
    """`run_python`, for scripts that may leave their interpreter in any state."""
    assert service_streamer.__file__
    return run_python
