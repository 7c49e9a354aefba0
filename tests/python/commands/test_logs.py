"""The log of a service: the JSON formatter, and what is logged about processes."""

import json
import logging
import os
import signal

import pytest
from waits import eventually

from service_streamer import Streamer
from service_streamer._commands.logs import JsonFormatter

pytest_plugins = ["commands", "supervisor_fixtures"]


def written(message, *args, exc_info=None, **extra):
    record = logging.getLogger("some.logger").makeRecord(
        "some.logger", logging.WARNING, "file.py", 1, message, args, exc_info, extra=extra
    )
    line = JsonFormatter().format(record)
    assert "\n" not in line
    return json.loads(line, parse_constant=pytest.fail)


def test_a_record_is_one_json_object():
    values = written("%d of %s", 3, "5", worker_pid=17, device=None)
    assert values.pop("time").endswith("Z")
    assert values == {
        "level": "WARNING",
        "logger": "some.logger",
        "message": "3 of 5",
        "worker_pid": 17,
        "device": None,
    }


def test_an_exception_has_its_traceback():
    try:
        raise ValueError("wrong\nin two lines")
    except ValueError as error:
        values = written("failed", exc_info=(type(error), error, error.__traceback__))
    assert values["exception"].startswith("Traceback")
    assert values["exception"].endswith("ValueError: wrong\nin two lines")


def test_what_json_does_not_know_is_written_as_its_repr():
    circle = []
    circle.append(circle)
    extra = {"a": object, "b": float("nan"), "c": circle, "d": {(1, 2): 3}, "e": {"f": [1.5]}}
    values = written("text", **extra)
    assert {key: values[key] for key in "abcd"} == {key: repr(extra[key]) for key in "abcd"}
    assert values["e"] == {"f": [1.5]}


def test_an_extra_field_does_not_replace_a_standard_key():
    assert written("text", level="low", time="noon")["level"] == "WARNING"


@pytest.mark.slow
def test_processes_are_logged_as_json(serve, address):
    service = serve("process_models:double", "--log-format", "json", "--devices", "3")

    def entry(what):
        return json.loads(service.line(what))

    started = entry("was started")
    pid = started["worker_pid"]
    assert (started["streamer"], started["device"]) == ("double", "3")
    assert entry("is ready")["worker_pid"] == pid
    assert entry("is served")["level"] == "INFO"
    with Streamer.connect(address) as client:
        assert client.predict([1]) == [2]
        assert entry("has connected")["client_pid"] == os.getpid()
        os.kill(pid, signal.SIGKILL)
        died = entry("was killed by SIGKILL")
        assert (died["level"], died["worker_pid"]) == ("ERROR", pid)
        replacement = entry("to replace")
        assert replacement["replaces"] == pid
        eventually(lambda: client.stats().worker_restarts == 1)
    assert entry("has gone")["client_pid"] == os.getpid()


@pytest.mark.slow
def test_the_log_level_hides_the_rest(serve, address):
    service = serve("process_models:double", "--log-level", "error")
    with Streamer.connect(address) as client:
        assert client.predict([1]) == [2]
    service.signal(signal.SIGTERM)
    _, errors = service.process.communicate(timeout=100)
    assert errors == ""


def test_the_supervisor_logs_retirement_and_failed_loads(fakes, caplog):
    caplog.set_level("INFO", "service_streamer")
    fake = fakes(3)
    fake.ready(0, 1)
    fake.fails(2)
    fake.supervisor.resize(1)
    fake.settle()
    retired = next(each for each in caplog.records if "retires" in each.getMessage())
    failed = next(each for each in caplog.records if "could not load" in each.getMessage())
    assert failed.levelname == "WARNING"
    assert (failed.streamer, retired.streamer) == ("str", "str")
