"""Which CPUs and how many threads each worker gets, on machines that are made up."""

import os
import sys
import threading
import types

import pytest
from told import told

from service_streamer import ManagedModel, Streamer
from service_streamer._placement.devices import THREAD_VARIABLES, environment
from service_streamer._placement.machine import (
    Core,
    cores_of,
    cpu_quota,
    parse_cpus,
    show_cpus,
    thread_count,
)
from service_streamer._placement.places import Place, Placement, divide
from service_streamer.hub import ModelHub, ModelSpec

ALL = range(16)


class Surroundings(ManagedModel):
    def init_model(self):
        pass

    def predict(self, batch):
        return surroundings(batch)


@pytest.fixture
def system(tmp_path):
    """The files of a system with 2 nodes of 4 cores with 2 CPUs: core 0 has the CPUs 0 and 8."""

    def write(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    write("node/node0/cpulist", "0-3,8-11")
    write("node/node1/cpulist", "4-7,12-15")
    write("node/node2/cpulist", "")  # of memory alone
    for cpu in ALL:
        write(f"cpu/cpu{cpu}/topology/thread_siblings_list", f"{cpu % 8},{cpu % 8 + 8}")
    return str(tmp_path)


@pytest.fixture
def cores(system):
    return cores_of(ALL, system)


def places(cores, workers, *options, quota=None):
    placement = Placement(*options, cores=cores)
    found = [placement.among(cores, worker, workers, quota) for worker in range(workers)]
    return [(show_cpus(each.cpus or ()), each.node, each.threads) for each in found]


# ----------------------------------------------------------------------------- the machine


def test_cores_have_their_siblings_and_their_node(cores):
    assert cores[:2] == [Core((0, 8), 0), Core((1, 9), 0)]
    assert cores[4:6] == [Core((4, 12), 1), Core((5, 13), 1)]
    assert len(cores) == 8


def test_cpus_that_are_off_or_outside_the_cpuset_are_left_out(system):
    assert cores_of({1, 9, 4}, system) == [Core((1, 9), 0), Core((4,), 1)]


def test_without_files_each_cpu_is_a_core(tmp_path):
    assert cores_of({3, 1}, str(tmp_path)) == [Core((1,), 0), Core((3,), 0)]


@pytest.mark.parametrize("text", ["", "0", "0-3,8", "1,3,5-6"])
def test_lists_of_cpus_are_read_and_written(text):
    assert show_cpus(parse_cpus(text + "\n")) == text


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        ("0::/", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/", {"cpu.max": "max 100000"}, None),
        ("0::/", {}, None),
        ("0::/pod/\udcff é", {"pod/\udcff é/cpu.max": "200000 100000"}, 2),
        ("0::/pod/web", {"pod/cpu.max": "200000 100000", "pod/web/cpu.max": "max 100000"}, 2),
        ("0::/pod/web", {"pod/cpu.max": "2000 1000", "pod/web/cpu.max": "400000 100000"}, 2),
        (
            "4:memory:/\n3:cpuacct,cpu:/docker/7f",  # the name is that outside the container
            {
                "cpu/cpu.cfs_quota_us": "400000",
                "cpu/cpu.cfs_period_us": "100000",
            },
            4,
        ),
        ("1:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
    ],
)
def test_the_quota_of_a_cgroup_is_the_smallest_above_it(own, files, quota, tmp_path):
    for name, text in {**files, "own": own}.items():
        file = tmp_path / "groups" / name if name != "own" else tmp_path / "own"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n", "utf-8", "surrogateescape")
    assert cpu_quota(str(tmp_path / "groups"), str(tmp_path / "own")) == quota


@pytest.mark.parametrize(("value", "threads"), [("3", 3), ("4,2", 4), ("", None), ("x", None)])
def test_threads_are_those_of_the_environment_or_of_the_cpus(value, threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)))
    assert thread_count() == (threads or 6)


# --------------------------------------------------------------------- places of workers


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        (1, [("0-15", None, 8)]),
        (2, [("0-3,8-11", 0, 4), ("4-7,12-15", 1, 4)]),
        (3, [("0-1,8-9", 0, 2), ("2-3,10-11", 0, 2), ("4-7,12-15", 1, 4)]),
        (4, [("0-1,8-9", 0, 2), ("2-3,10-11", 0, 2), ("4-5,12-13", 1, 2), ("6-7,14-15", 1, 2)]),
    ],
)
def test_auto_gives_each_worker_whole_cores_of_one_node(cores, workers, expected):
    assert places(cores, workers, "auto") == expected


@pytest.mark.parametrize("workers", range(1, 9))
def test_each_core_belongs_to_one_worker(cores, workers):
    parts = divide(cores, workers)
    assert sorted((core for part in parts for core in part), key=cores.index) == cores
    assert all(parts)
    assert workers == 1 or all(len({core.node for core in part}) == 1 for part in parts)


def test_more_workers_than_cores_share_them(cores):
    found = places(cores, 16, "auto")
    assert found[:4] == [("0,8", 0, 1), ("0,8", 0, 1), ("1,9", 0, 1), ("1,9", 0, 1)]
    assert found[-1] == ("7,15", 1, 1)


def test_no_smt_leaves_the_siblings_out(cores):
    assert places(cores, 2, "no_smt") == [("0-3", 0, 4), ("4-7", 1, 4)]


def test_lists_go_round(cores):
    assert places(cores, 3, ["0-1", [4, 12]]) == [
        ("0-1", 0, 1),  # two cores for two workers
        ("4,12", 1, 1),
        ("0-1", 0, 1),
    ]
    assert places(cores, 1, ["3-4"]) == [("3-4", None, 2)]


def test_numa_binds_to_a_whole_node(cores):
    one, other = ("0-3,8-11", 0), ("4-7,12-15", 1)
    assert places(cores, 3, None, "auto") == [(*one, 2), (*other, 4), (*one, 2)]
    assert places(cores, 2, None, [1]) == [(*other, 2), (*other, 2)]


def test_numa_and_affinity_divide_the_cores_of_a_node(cores):
    assert places(cores, 3, "auto", [1, 1, 0]) == [
        ("4-5,12-13", 1, 2),
        ("6-7,14-15", 1, 2),
        ("0-3,8-11", 0, 4),
    ]


def test_with_one_node_numa_does_nothing(system):
    cores = cores_of({0, 1, 2, 3, 8, 9, 10, 11}, system)
    assert places(cores, 2, None, "auto") == places(cores, 2, None, [0]) == [("", None, 4)] * 2
    assert places(cores, 2, "auto", "auto") == [("0-1,8-9", None, 2), ("2-3,10-11", None, 2)]


def test_a_quota_limits_the_threads(cores):
    assert [each[2] for each in places(cores, 2, "auto", quota=4.5)] == [2, 2]
    assert [each[2] for each in places(cores, 2, "auto", quota=0.5)] == [1, 1]


def test_the_threads_that_are_given_stay(cores):
    assert [each[2] for each in places(cores, 2, "auto", None, 3, quota=2)] == [3, 3]
    assert Placement(None, None, 3).of(0, 2) == Place(3, is_chosen=True)


def test_cpus_that_are_gone_bind_no_worker(cores):
    placement = Placement(["4-5"], cores=cores)
    assert placement.among(cores_of({0, 1}, "/nowhere"), 0, 1).cpus is None


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"affinity": "all"}, ValueError, "affinity must be \"auto\", \"no_smt\", or CPUs for each "
         "worker, such as [\"0-3\", \"4-7\"], not 'all'"),
        ({"affinity": 3}, TypeError, "affinity must be \"auto\" or a sequence such as [\"0-3\"], "
         "not 3"),
        ({"affinity": []}, ValueError, "affinity must name something, such as [\"0-3\"], not []"),
        ({"affinity": [[]]}, ValueError, "affinity must name something, such as [0, 1], not []"),
        ({"affinity": [""]}, ValueError, "affinity must name a CPU for each worker, not ''"),
        ({"affinity": [0, 1]}, TypeError, "affinity has the CPUs of each worker: write [0] or "
         "\"0\", not 0"),
        ({"affinity": ["3-1"]}, ValueError, "affinity: '3-1' is no list of CPUs such as 0-3,8"),
        ({"affinity": [[-1]]}, ValueError, "affinity must be an int of at least 0, not -1"),
        ({"affinity": ["0-1", "15-17"]}, ValueError, "affinity names the CPUs 16-17, which do not "
         "exist or are not allowed here: choose from 0-15"),
        ({"affinity": ["0"], "numa": [0]}, ValueError, "numa=[0] is not for CPUs that are given, "
         "which have their nodes: leave it out, or use affinity=\"auto\""),
        ({"numa": "both"}, ValueError, "numa must be \"auto\" or nodes such as [0, 1], not 'both'"),
        ({"numa": 1}, TypeError, "numa must be \"auto\" or a sequence such as [0, 1], not 1"),
        ({"numa": [0, 2]}, ValueError, "numa names the nodes 2, which do not exist or have no CPU "
         "that is allowed here: choose from 0-1"),
        ({"threads_per_worker": 0}, ValueError, "threads_per_worker must be an int of at least 1, "
         "not 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(cores, options, error, message):
    with pytest.raises(error) as raised:
        Placement(**options, cores=cores)
    assert str(raised.value) == told(message, "a-wrong-value-of-an-option")


# ----------------------------------------------------------------------- in the worker


def surroundings(batch):
    """The CPUs of each thread of this process, and its numbers of threads."""
    tasks = os.listdir("/proc/self/task")
    cpus = [show_cpus(os.sched_getaffinity(int(task))) for task in tasks]
    return [(set(cpus), *(os.environ[name] for name in THREAD_VARIABLES)) for _ in batch]


class Early:
    """Starts a thread when it is unpickled, as libraries do when they are imported."""

    def __getstate__(self):
        return "started"

    def __setstate__(self, state):
        threading.Thread(target=threading.Event().wait, name=state, daemon=True).start()

    def predict(self, batch):
        return surroundings(batch)


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_only_a_worker_and_all_its_threads_are_bound(method, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    before = {task: os.sched_getaffinity(int(task)) for task in os.listdir("/proc/self/task")}
    cpu = str(max(os.sched_getaffinity(0)))
    options = {"affinity": [cpu], "threads_per_worker": 3, "mp_start_method": method}
    with Streamer(Early().predict, 8, **options) as streamer:
        assert streamer.predict([1]) == [({cpu}, "3", "3", "3", "3")]
        (worker,) = streamer.stats().worker_processes
        assert (worker.cpus, worker.numa_node, worker.threads) == (cpu, None, "3")
        assert f"pid {worker.pid} is bound to CPUs {cpu}" in streamer.explain()
        for task in os.listdir("/proc/self/task"):  # the IO thread too
            assert os.sched_getaffinity(int(task)) == before.get(task, os.sched_getaffinity(0))


def test_workers_that_are_not_bound_say_nothing(process_streamers):
    streamer = process_streamers(surroundings)
    streamer.predict([1])
    assert streamer.stats().worker_processes[0].cpus is None
    assert "bound" not in streamer.explain()


def test_shared_workers_of_a_hub_are_bound():
    models = {name: ModelSpec(Surroundings, batch_size=8) for name in ("first", "second")}
    cpus = os.sched_getaffinity(0)
    with ModelHub(models, workers=2, affinity="auto", threads_per_worker=2) as hub:
        found = [hub.predict(name, [1])[0] for name in models]
    assert [each[1:] for each in found] == [("2",) * 4] * 2
    bound = [parse_cpus(each) for found in found for each in found[0]]
    assert set.union(*bound) <= cpus
    assert len(cpus) == 1 or bound[0].isdisjoint(bound[1])


@pytest.mark.parametrize("name", ["affinity", "threads_per_worker"])
def test_a_hub_without_shared_workers_refuses_their_options(name):
    with pytest.raises(ValueError, match=f"{name}=3 is for worker processes that models share: gi"):
        ModelHub({}, **{name: 3})


def test_a_worker_that_cannot_be_bound_says_so():
    before = os.sched_getaffinity(0)
    place = Place(1, (100_000,), 1)
    place.enter()
    assert os.sched_getaffinity(0) == before
    assert place.about() == {"cpus": None, "numa_node": None}


@pytest.mark.parametrize(
    ("place", "threads"),
    [(Place(3), []), (Place(3, is_chosen=True), [3]), (Place(3, cpus=(0, 1, 2)), [3])],
)
def test_torch_that_is_loaded_already_gets_the_threads_of_a_place(place, threads, monkeypatch):
    seen = []
    torch = types.SimpleNamespace(set_num_threads=seen.append)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(os, "environ", {**os.environ, **environment(None, place, {})})
    place.limit_torch()
    assert seen == threads
