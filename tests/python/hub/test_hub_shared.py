"""Models that share worker processes."""

import os
import signal
import threading

import pytest
from hub_models import ThreadCount, Where, spell
from model_errors import OWN_INIT, picture, raise_named
from process_models import PathGate, ProcessGate, echo
from step_models import Countdown
from waits import LONG, Threads, eventually

from service_streamer import StreamerClosed, WorkerInitError, WorkerLost
from service_streamer._placement.machine import cpu_count
from service_streamer.hub import ModelLoadError, ModelSpec
from service_streamer.hub._memory import pss


def where(name, batch_size=8, shared=True, **kwargs):
    kwargs["name"] = name
    return ModelSpec(Where, batch_size=batch_size, shared=shared, model_init_kwargs=kwargs)


def pid_of(hub, name):
    return hub.predict(name, [0])[0][1]


def version_of(hub, name):
    return hub.status()[name].versions[1]


@pytest.fixture
def gate(tmp_path):
    """A model that holds the worker which it shares."""
    gate = ProcessGate(tmp_path)
    yield gate
    gate.open()
    gate.close()


@pytest.fixture
def held(gate, tmp_path, hubs):
    """Makes hubs with one worker, which has loaded all models and is in the gate."""

    def make(**models):
        models["gate"] = ModelSpec(PathGate, batch_size=1, model_init_args=[str(tmp_path)])
        hub = hubs(models, workers=1)
        for name in models:
            hub.load(name)
        hub["gate"].submit([0])
        gate.wait_entered()
        return hub

    return make


def test_many_models_run_in_few_processes(hubs):
    names = [f"model-{number}" for number in range(8)]
    hub = hubs({name: where(name) for name in names}, workers=2)
    pids = set()
    for name in names:
        ((answered, pid, batch),) = hub.predict(name, [name.upper()])
        assert (answered, batch) == (name, [name.upper()])
        assert version_of(hub, name).shared
        pids.add(pid)
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert hub["model-3"].stats().submitted == 1


def test_a_batch_has_items_of_one_model_and_at_most_its_batch_size(held, gate):
    hub = held(three=where("three", batch_size=3), five=where("five", batch_size=5))
    names = ["three", "five"]
    futures = {name: [hub[name].submit([name] * 4) for _ in range(7)] for name in names}
    eventually(lambda: hub["three"].stats().queued_items == 56)
    gate.open()
    for name, size in (("three", 3), ("five", 5)):
        outputs = [output for future in futures[name] for output in future.result(LONG)]
        assert {(answered, *batch) for answered, _, batch in outputs} >= {(name,) + (name,) * size}
        assert all(set(batch) == {name} and len(batch) <= size for _, _, batch in outputs)


def test_a_model_that_kills_its_worker_takes_only_its_own_requests(held, gate):
    hub = held(good=where("good"), bad=where("bad"))
    lost = hub["bad"].submit(["die"])
    others = [hub["good"].submit([number]) for number in range(20)]
    gate.open()
    assert [future.result(LONG)[0][0] for future in others] == ["good"] * 20
    with pytest.raises(WorkerLost):
        lost.result(LONG)


def test_after_two_deaths_a_model_moves_and_its_other_requests_with_it(held, gate):
    hub = held(good=where("good"), bad=where("bad", batch_size=1))
    callers = Threads()
    callers.run(hub.predict, "bad", ["die"])
    eventually(lambda: hub["bad"].stats().queued_items == 1)
    submitted = [hub["bad"].submit(["ok"]) for _ in range(5)]
    for _ in range(5):
        callers.run(hub.predict, "bad", ["ok"])
    eventually(lambda: hub["bad"].stats().queued_items == 11)
    gate.open()
    lost, *others = callers.join()
    assert isinstance(lost, WorkerLost)
    others += [future.result(LONG) for future in submitted]
    assert {(name, *batch) for ((name, _, batch),) in others} == {("bad", "ok")}
    assert len({pid for ((_, pid, _),) in others}) == 1
    assert pid_of(hub, "bad") == others[0][0][1] != pid_of(hub, "good")
    status = version_of(hub, "bad")
    assert (status.shared, status.worker_deaths) == (False, 2)
    assert (version_of(hub, "good").shared, version_of(hub, "good").worker_deaths) == (True, 0)


def test_a_death_without_a_batch_is_no_models_fault(hubs):
    hub = hubs({"a": where("a"), "b": where("b")}, workers=1)
    pids = [pid_of(hub, "a")]
    for _ in range(2):
        os.kill(pids[-1], signal.SIGKILL)
        eventually(lambda: pid_of(hub, "a") != pids[-1])
        pids.append(pid_of(hub, "b"))
    assert version_of(hub, "a").shared
    assert hub.predict("a", [1])[0][1] == pids[-1]


def test_an_unloaded_model_frees_its_memory(hubs):
    hub = hubs({"small": where("small"), "large": where("large", megabytes=60)}, workers=1)
    pid = pid_of(hub, "small")
    before = pss(pid)
    assert pid_of(hub, "large") == pid
    assert version_of(hub, "large").memory >= 60e6
    assert pss(pid) >= before + 60e6
    hub.unload("large")
    assert pss(pid) <= before + 10e6
    assert pid_of(hub, "large") == pid


def test_exceptions_of_a_shared_worker_are_those_of_a_thread(hubs):
    hub = hubs({"named": ModelSpec(raise_named, batch_size=8, processes=True)}, workers=1)
    for name, make in OWN_INIT.items():
        assert picture(hub["named"].submit([name]).exception(LONG)) == picture(make())
    with pytest.raises(RuntimeError, match="StopIteration"):
        hub.predict("named", ["stop"])


def test_shared_models_make_room_for_one_another(hubs):
    names = ["a", "b", "c"]
    models = {name: where(name, megabytes=30) for name in names}
    hub = hubs(models, workers=2, memory_budget=80_000_000)
    for name in names:
        assert hub.predict(name, [1])[0][0] == name
    assert [version_of(hub, name).state for name in names] == ["unloaded", "ready", "ready"]


def test_a_model_that_cannot_be_loaded_leaves_the_others(hubs):
    hub = hubs({"good": where("good"), "bad": where("bad", error="no weights")}, workers=1)
    pid = pid_of(hub, "good")
    with pytest.raises(ModelLoadError, match="no weights") as caught:
        hub.predict("bad", [1])
    assert isinstance(caught.value.__cause__, WorkerInitError)
    assert isinstance(caught.value.__cause__.__cause__, LookupError)
    assert pid_of(hub, "good") == pid


def test_a_model_that_kills_its_worker_while_it_is_loaded(hubs):
    hub = hubs({"good": where("good"), "bad": where("bad", dies=True)}, workers=1)
    hub.load("good")
    with pytest.raises(ModelLoadError, match="died while it loaded"):
        hub.load("bad")
    pid = pid_of(hub, "good")
    with pytest.raises(ModelLoadError, match="exited with code 3"):
        hub.load("bad")  # in a process of its own
    assert pid_of(hub, "good") == pid


def test_streams(hubs):
    hub = hubs({"spell": ModelSpec(spell, batch_size=4, processes=True)}, workers=1)
    assert list(hub["spell"].stream("not loaded")) == list("not loaded")
    assert list(hub["spell"].stream("loaded")) == list("loaded")
    assert hub.predict("spell", ["abc", "def"]) == [["a", "b", "c"], ["d", "e", "f"]]


def test_a_forked_child_uses_the_shared_worker_until_the_parent_unloads(hubs):
    hub = hubs({"a": where("a"), "b": where("b")}, workers=1)
    pid = pid_of(hub, "a")
    hub.load("b")
    unloaded, to_child = os.pipe()
    answer, to_parent = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            assert pid_of(hub, "a") == pid
            assert list(hub["b"].stream(1)) == [("b", pid, [1])]
            os.write(to_parent, b"1")
            os.read(unloaded, 1)
            with pytest.raises(StreamerClosed, match="unloaded"):
                hub.predict("a", [1])
            assert pid_of(hub, "b") == pid
            hub.close()
            os.write(to_parent, b"2")
        except BaseException as error:
            os.write(to_parent, repr(error).encode())
        finally:
            os._exit(0)
    assert os.read(answer, 1000) == b"1"
    hub.unload("a")
    os.write(to_child, b"x")
    assert os.read(answer, 1000) == b"2"
    os.waitpid(child, 0)
    assert pid_of(hub, "a") == pid_of(hub, "b") == pid
    for fd in (unloaded, to_child, answer, to_parent):
        os.close(fd)


@pytest.mark.parametrize("drain", [True, False])
def test_closing_under_load_ends_each_request_once(hubs, drain):
    hub = hubs({name: where(name) for name in "abc"}, workers=2)
    pids = {pid_of(hub, name) for name in "abc"}
    begun = threading.Semaphore(0)

    def ask(name):
        for number in range(100_000):
            try:
                assert hub.predict(name, [number])[0][0] == name
            except StreamerClosed:
                return
            begun.release()

    callers = Threads()
    for name in "abcabc":
        callers.run(ask, name)
    for _ in range(50):
        assert begun.acquire(timeout=LONG)
    hub.close(drain=drain)
    assert callers.join() == [None] * 6
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_shared_worker_has_its_part_of_the_cores(hubs, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    hub = hubs({"threads": ModelSpec(ThreadCount, batch_size=8)}, workers=2)
    assert hub.predict("threads", [1]) == [max(1, cpu_count() // 2)]


def test_what_shares_a_worker():
    assert where("a").shared is not None
    assert ModelSpec(echo, batch_size=8, processes=True, worker_timeout=3).shared is not None
    for spec in (
        where("a", shared=False),
        where("a", batch_size=2000),
        ModelSpec(Where, batch_size=8, worker_num=1),
        ModelSpec(Where, batch_size=8, mp_start_method="fork"),
        ModelSpec(Where, batch_size=8, worker_hang_timeout=3),
        ModelSpec(Countdown, batch_size=8),
        ModelSpec(echo, batch_size=8),
    ):
        assert spec.shared is None
    with pytest.raises(ValueError, match="shared"):
        ModelSpec(Where, batch_size=8, shared="no")


def test_a_new_version_of_a_folder_shares_the_worker(folder, watched):
    folder.configure(model="hub_models:Multiply")
    folder.add(2)
    hub = watched(workers=1)
    assert hub.predict("times", [5]) == [10]
    folder.add(3)
    eventually(lambda: hub.status()["times"].serving == 3)
    assert hub.predict("times", [5]) == [15]
    assert hub.status()["times"].versions[3].shared
    folder.configure("shared = false", model="hub_models:Multiply")
    folder.add(4)
    eventually(lambda: hub.status()["times"].serving == 4)
    assert hub.predict("times", [5]) == [20]
    assert not hub.status()["times"].versions[4].shared


def test_close_answers_what_was_submitted(hubs):
    hub = hubs({"where": where("where")}, workers=1)
    hub.load("where")
    futures = [hub["where"].submit([number]) for number in range(200)]
    hub.close()
    assert {future.result()[0][0] for future in futures} == {"where"}
