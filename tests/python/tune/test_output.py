"""tuned.toml and the plot."""

import dataclasses
import os
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from service_streamer import Streamer
from service_streamer._commands.tune import output
from service_streamer._commands.tune.search.file import text_of, write
from service_streamer._commands.tune.search.front import Measured
from service_streamer._commands.tune.search.rates import Point
from service_streamer._commands.tune.search.space import NUMA, Settings, Space

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PYTHON = Settings(8, 2, 1, "window", 0.01, affinity="auto")
NATIVE = Settings(8, 2, 1, "greedy", None, native=True)
AT_THE_EDGE = "is the most that was tried: more may be better, with"
POINT = Point(100.0, 98.04, 0.0312345678)


def written(settings):
    text = output.tuned(Measured(settings, POINT), {"native": "m.pt2", "slo_p99": 0.05}, "tune …")
    return tomllib.loads(text)


def test_values_come_back_as_they_were():
    values = {"a": 'quote " \\ \n \x7f é 😀', "b": True, "c": 3, "d": 0.05, "e": 1e-9}
    tables = tomllib.loads(text_of({"options": {**values, "none": None}}))
    assert tables == {"options": values}


def test_a_command_of_several_lines_is_in_the_file():
    command = "service-streamer tune app:Model --warmup '[1,\n2]'"
    text = output.tuned(Measured(PYTHON, POINT), {}, command)
    assert tomllib.loads(text)["tuned"]["command"] == command


def test_the_umask_of_the_user_is_kept(tmp_path):
    before = os.umask(0o077)
    try:
        write(str(tmp_path / "tuned.toml"), "text")
    finally:
        os.umask(before)
    assert (tmp_path / "tuned.toml").stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "tuned.toml").mkdir()
    with pytest.raises(OSError):
        write(str(tmp_path / "tuned.toml"), "text")
    assert [path.name for path in tmp_path.iterdir()] == ["tuned.toml"]


def test_a_streamer_takes_the_file(tmp_path):
    path = tmp_path / "tuned.toml"
    path.write_text(output.tuned(Measured(PYTHON, POINT), {}, "tune"))
    with Streamer(str, options=path, mp_start_method="fork") as streamer:
        stats = streamer.stats()
    assert (stats.batch_size, stats.policy, stats.max_latency) == (8, "window", 0.01)


def test_a_worker_on_each_numa_node_is_an_option_of_its_own():
    settings = dataclasses.replace(PYTHON, affinity=NUMA)
    assert written(settings)["options"] == {
        "batch_size": 8,
        "worker_num": 2,
        "threads_per_worker": 1,
        "policy": "window",
        "max_latency": 0.01,
        "numa": "auto",
    }
    assert str(settings).endswith("max_latency=0.01 numa=auto")
    assert str(PYTHON).endswith("max_latency=0.01 affinity=auto")


def test_the_options_of_a_compiled_model_are_distinguished():
    assert written(NATIVE)["options"] == {"batch_size": 8, "policy": "greedy"}
    about = written(NATIVE)["tuned"]
    assert about["native"] == "m.pt2"
    assert (about["native_workers"], about["native_intra_op_threads"]) == (2, 1)
    assert (about["throughput"], about["p99"]) == (98.0, 0.031235)
    assert "native" not in written(PYTHON)["tuned"]
    assert 'NativeModel("m.pt2", workers=2, intra_op_threads=1), options="t.toml"' in output.usage(
        Measured(NATIVE, POINT), "m.pt2", "t.toml"
    )


def test_the_plot_is_a_picture_with_all_loads_near_the_target():
    every = [Measured(PYTHON, Point(rate, rate, 0.01 * rate)) for rate in range(1, 30)]
    picture = ElementTree.fromstring(output.picture(every, every[:3], slo=0.05))
    dots = [node for node in picture.iter() if node.get("class") in ("dot0", "dot1")]
    legend = 2
    assert len(dots) == 15 + 3 + legend


@pytest.mark.parametrize(
    ("batch_size", "worker_num", "rates", "said"),
    [
        (4, 1, [(98, 0.03), (500, 0.2)], []),
        (8, 1, [], [f"batch_size=8 {AT_THE_EDGE} --max-batch-size 16."]),
        (4, 2, [], [f"worker_num=2 {AT_THE_EDGE} --max-workers 4."]),
        (4, 1, [(120, 0.03)], ["The trials had up to 120 requests/s within the target."]),
    ],
)
def test_a_best_at_the_edge_and_luckier_trials_are_said(batch_size, worker_num, rates, said):
    space = Space.of_machine(2, 0.05, most_items=8, most_workers=2)
    best = Measured(Settings(batch_size, worker_num, 1, "greedy", None), POINT)
    first = [Measured(PYTHON, Point(rate, rate, p99)) for rate, p99 in rates]
    lines = output.remarks(best, first, space, slo=0.05)
    assert len(lines) == len(said)
    assert all(line.startswith(start) for line, start in zip(lines, said, strict=True))
