"""The files that processes share: sums, engines that are counted once, and bounded growth."""

import os

import pytest

pytest.importorskip("prometheus_client")

from service_streamer.metrics._directory import KEPT, KEPT_IDS, Directory


@pytest.fixture
def directory(tmp_path):
    return Directory(str(tmp_path))


def record(count, uptime=1.0, queued=0.0):
    return {
        "uptime": uptime,
        "counters": {"requests": {"completed": count}},
        "gauges": {"queued_items": {"": queued}},
        "stream": None,
        "complete": True,
    }


def process(number):
    return f"service_streamer_{number}_0"


def completed(directory, answered=(), gone=()):
    totals = directory.totals({*map(process, answered)}, {*map(process, gone)})
    return totals["one"].counters["requests"]["completed"]


def test_gauges_are_those_of_processes_that_answered(directory):
    directory.write(process(1), {"one": {"a": record(1, queued=4)}})
    directory.write(process(2), {"one": {"b": record(1, queued=5)}})
    for answered, queued in (([1, 2], 9), ([2], 5)):
        gauges = directory.totals({*map(process, answered)}, ()).get("one").gauges
        assert gauges["queued_items"] == {"": queued}
    assert directory.totals((), ())["one"].up == 0


def test_a_late_record_of_an_ended_engine_counts_once(directory):
    directory.retire({"one": {"a": record(3, uptime=3)}})
    directory.retire({"one": {"a": record(2, uptime=2)}})
    assert completed(directory) == 3
    for number in range(KEPT + 1):
        directory.retire({"one": {f"b{number}": record(1)}})
    directory.retire({"one": {"a": record(3, uptime=3)}})
    assert completed(directory) == 3 + KEPT + 1


def test_an_engine_that_still_runs_stays_listed(directory):
    directory.write(process(1), {"one": {"a": record(1)}})
    directory.retire({"one": {"a": record(1)}})
    for number in range(2 * KEPT):
        directory.retire({"one": {f"b{number}": record(1)}})
    directory.write(process(1), {"one": {"a": record(9, uptime=9)}})
    assert completed(directory, answered=[1]) == 9 + 2 * KEPT


def test_a_socket_that_never_listened_is_removed(directory, tmp_path):
    old, young = (tmp_path / f"{process(number)}.sock.new" for number in (1, 2))
    for file in (old, young):
        file.touch()
    os.utime(old, (0, 0))
    directory.totals((), ())
    assert [old.exists(), young.exists()] == [False, True]


def test_the_directory_stays_small(directory, tmp_path):
    many = KEPT_IDS + 2 * KEPT
    for number in range(many):
        directory.retire({"one": {f"{number:032x}": record(1)}})
    assert completed(directory) == many
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 100_000
