"""Each log record has fields for a JSON formatter, and the page on monitoring has all of them."""

import ast
import logging
import os
import re
from pathlib import Path

import pytest
from waits import eventually

import service_streamer

PACKAGE = Path(service_streamer.__file__).parent
PAGE = Path(__file__).parents[3] / "docs/guide/monitoring/log-records.md"
LEVELS = ("debug", "info", "warning", "error", "critical", "exception", "log")
CALLS = {f"_logger.{level}" for level in LEVELS}


def documented():
    section = PAGE.read_text()
    return set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))


def logged():
    """Each call that logs: where it is, and its keyword arguments."""
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in CALLS:
                where = f"{file.relative_to(PACKAGE)}:{node.lineno}"
                yield where, {keyword.arg for keyword in node.keywords}


def loggers():
    """The names of the loggers of all modules."""
    return {
        name
        for file in PACKAGE.rglob("*.py")
        for name in re.findall(r"^_logger = logging\.getLogger\((.*)\)", file.read_text(), re.M)
    }


def test_every_record_has_fields():
    calls = dict(logged())
    assert len(calls) > 20
    without = [where for where, keywords in calls.items() if "extra" not in keywords]
    assert [where for where in without if "_commands/logs" not in where] == []  # for the operator


def test_every_logger_is_below_that_of_the_package():
    assert loggers() == {f'"service_streamer{child}"' for child in ("", ".access", ".web")}


def test_fields_do_not_collide_with_those_of_logging():
    record = logging.makeLogRecord({})
    assert documented().isdisjoint({*vars(record), "message", "asctime"})


@pytest.fixture
def records(caplog):
    """Returns what was logged, from DEBUG on."""
    caplog.set_level(logging.DEBUG, "service_streamer")
    return lambda: [each for each in caplog.records if each.name.startswith("service_streamer")]


def fields(record):
    return {
        name: value
        for name, value in vars(record).items()
        if name not in vars(logging.makeLogRecord({})) and name != "message"
    }


def checked(record):
    """The fields of a record, all of which are documented."""
    assert fields(record).keys() <= documented()
    return fields(record)


def double(batch):
    return [2 * item for item in batch]


@pytest.mark.in_process
def test_a_batch(streamers, records):
    streamers(double).predict([1, 2, 3])
    eventually(records)
    found = checked(records()[0])
    assert 0 <= found.pop("oldest_wait_seconds") < 60
    assert 0 <= found.pop("run_seconds") < 60
    assert found.pop("device") == os.environ.get("CUDA_VISIBLE_DEVICES")
    assert found == {
        "streamer": "double",
        "worker_pid": os.getpid(),
        "items": 3,
        "requests": 1,
        "close_reason": "idle",
    }


@pytest.mark.in_process
def test_a_callback_that_raises(streamers, records):
    streamers(double).submit([1]).add_done_callback(lambda _: int("one"))
    eventually(lambda: any("callback" in each.msg for each in records()))
    (record,) = (each for each in records() if "callback" in each.msg)
    error = "ValueError: invalid literal for int() with base 10: 'one'"
    assert checked(record) == {"error": error}
    assert record.exc_info[0] is ValueError


def crash(batch):
    os._exit(3)


def test_a_worker_process_that_dies(process_streamers, records):
    streamer = process_streamers(crash, cuda_devices=(1,), retries=0)
    streamer.wait_ready()
    (worker,) = streamer.stats().worker_processes
    with pytest.raises(service_streamer.WorkerLost):
        streamer.predict([1])
    eventually(lambda: any(each.levelno >= logging.ERROR for each in records()))
    (record,) = (each for each in records() if each.levelno >= logging.ERROR)
    assert checked(record) == {
        "streamer": "crash",
        "worker": 0,
        "worker_pid": worker.pid,
        "device": "1",
        "error": "exited with code 3 during a batch",
    }


def test_options_of_a_search_that_a_class_does_not_have(records, tmp_path):
    path = tmp_path / "tuned.toml"
    path.write_text("[options]\nbatch_size = 8\nnuma = 'auto'\n[tuned]\n")
    service_streamer.ThreadedStreamer(double, options=path).close()
    found = [checked(record) for record in records() if "left out" in record.msg]
    assert found == [{"options_file": str(path), "left_out": "numa"}]


def test_a_client_without_an_owner(records):
    with service_streamer.Streamer.connect("@no-such-owner-of-the-log") as client:
        with pytest.raises(service_streamer.StreamerError):
            client.stats()
        assert checked(records()[0])["streamer"] == "@no-such-owner-of-the-log"
