"""The command line itself: its names, its version, and calls that are wrong."""

import os
import subprocess
import sys
import sysconfig

import pytest
from command_processes import COMMAND, call_each
from waits import LONG

import service_streamer
from service_streamer._commands import trace
from service_streamer._commands.main import _parser, main

SCRIPT = [os.path.join(sysconfig.get_path("scripts"), "service-streamer")]

pytest_plugins = ["commands"]
pytestmark = pytest.mark.slow


def call(command, *arguments, **options):
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=LONG, **options
    )


@pytest.mark.parametrize("command", [COMMAND, SCRIPT], ids=["module", "script"])
def test_both_names_are_the_same_command(command):
    done = call(command, "--version")
    assert done.returncode == 0
    assert done.stdout == f"service-streamer {service_streamer.__version__}\n"


@pytest.mark.parametrize("command", ["serve", "redis-worker", "bench"])
@pytest.mark.parametrize(
    ("flags", "affinity", "numa"),
    [
        ("--affinity auto --numa auto", "auto", "auto"),
        ("--affinity no_smt --numa 0 1", "no_smt", [0, 1]),
        ("--affinity 0-3 --numa 1", ["0-3"], [1]),
        ("--affinity 0-3,8 4-7", ["0-3,8", "4-7"], None),
    ],
)
def test_the_cpus_of_workers_are_words_or_lists(command, flags, affinity, numa):
    options = vars(_parser().parse_args([command, "models:Model", *flags.split()]))
    assert (options["affinity"], options.get("numa")) == (affinity, numa)


TIMES = {
    "serve a:b": "max_latency slo worker_hang_timeout drain_timeout",
    "ray-serve a:b --name a": "target_queue_time placement_timeout",
    "top @a": "interval",
    "canary http://a/ a@1 --share 1": "timeout",
    "bench a:b": "seconds timeout p99_limit max_latency slo",
    "tune a:b --sample a --slo-p99 1s": "slo_p99 seconds start_timeout",
    "trace @a": "seconds",
}
"""each option that is a time, by a call that has none"""


@pytest.mark.parametrize(
    ("command", "option"),
    [(command, option) for command, options in TIMES.items() for option in options.split()],
)
def test_a_time_has_a_unit_or_is_in_seconds(command, option, capsys):
    flag = "--" + option.replace("_", "-")
    for text, seconds in (("50ms", 0.05), ("2s", 2), ("0.05", 0.05)):
        assert vars(_parser().parse_args([*command.split(), flag, text]))[option] == seconds
    for text in ("5m", "fast", ""):
        with pytest.raises(SystemExit):
            _parser().parse_args([*command.split(), flag, text])
        assert (
            f"{flag}: must be a time such as 50ms or 0.05, not {text!r}" in capsys.readouterr().err
        )


WRONG = [
    ([], "required"),
    (["dance"], "invalid choice"),
    (["serve", "a:b", "--address", "@a", "--http", "9000"], "must be HOST:PORT"),
    (["serve", "a:b", "--address", "@a", "--log-level", "loud"], "--log-level"),
    (["serve", "a:b", "--address", "@a", "--log-format", "xml"], "--log-format"),
]


def test_a_wrong_call_is_refused():
    calls = call_each(*(arguments for arguments, _ in WRONG))
    for (_, message), (code, text) in zip(WRONG, calls, strict=True):
        assert code == 2
        assert message in text.splitlines()[-1]


def test_the_help_names_each_command():
    """The help of those that start workers has an example."""
    names = ["serve", "redis-worker", "top"]
    (code, text), *each = call_each(["--help"], *([name, "--help"] for name in names))
    assert [code, *(code for code, _ in each)] == [0] * 4
    assert all(name in text for name in names)
    for (_, text), example in zip(each, ("Streamer.connect(", "RedisStreamer("), strict=False):
        assert example in text
        assert "--workers 2 --devices 0 1" in text


def test_a_reader_that_has_ended_is_no_error(serve, address):
    serve("process_models:double").line("is served")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, "top", address, "--once", "--json"],
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=LONG,
    )
    os.close(write)
    assert done.returncode == 1
    assert done.stderr == b""


def test_the_commands_import_no_optional_library():
    code = (
        "import sys; from service_streamer._commands import main; "
        "print({'rich', 'uvicorn', 'starlette', 'redis'} & set(sys.modules))"
    )
    assert call([sys.executable, "-c", code]).stdout == "set()\n"


def test_ctrl_c_is_no_traceback(monkeypatch):
    def run(**options):
        raise KeyboardInterrupt

    monkeypatch.setattr(trace, "run", run)
    assert main(["trace", "/tmp/a.sock"]) == 130
