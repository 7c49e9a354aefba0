"""Requests that a module sends while it is imported, to a model that imports this module."""

import re

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.every_python]

APP = """
import logging
from service_streamer import *

logging.basicConfig(format="%(levelname)s %(message)s")

def predict(batch):
    from app import double
    return double(batch)

def ask(streamer):
    try:
        print(streamer.predict([1]), flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)

"""
DOUBLE = "\ndef double(batch):\n    return [2 * item for item in batch]\n"


def run(child, tmp_path, ask):
    """What a module prints and logs that asks a model while it is imported."""
    (tmp_path / "app.py").write_text(APP + ask + DOUBLE)
    done = child(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import app")
    return done.stdout, done.stderr


def test_the_time_out_and_the_log_name_the_import_that_a_thread_waits_for(child, tmp_path):
    output, log = run(child, tmp_path, "ask(ThreadedStreamer(predict, 8, worker_timeout=1.2))")
    line = APP.count("\n") + 1
    told = rf"the model waits for the import of the module app, which is at line {line} of .*app.py"
    assert re.match(rf"RequestTimeout .*\([\d.]+ m?s\): {told}: send no request", output)
    assert re.match(f"WARNING a request waits: {told}", log)
    assert log.count("WARNING") == 1


def test_a_time_out_for_another_reason_does_not_mention_imports(child, tmp_path):
    ask = "import threading; wait = lambda batch: threading.Event().wait()\n"
    ask += "ask(ThreadedStreamer(wait, 8, worker_timeout=1.2))"
    output, log = run(child, tmp_path, ask)
    assert re.fullmatch(r"RequestTimeout .* within its deadline \([\d.]+ m?s\)\n", output)
    assert log == ""


def test_a_forked_worker_does_not_wait_for_an_import_of_its_parent(child, tmp_path):
    ask = 'with Streamer(predict, 8, mp_start_method="fork") as streamer:\n    ask(streamer)\n'
    output, _ = run(child, tmp_path, ask)
    assert re.match("ImportError cannot import name 'double' from .*'app'", output)


FORK = """
import importlib, os, sys, threading, traceback
from service_streamer import ThreadedStreamer

reached, parent = threading.Event(), os.getpid()

def stick(event, arguments):
    if (event, arguments[:1], os.getpid()) == ("import", (AT,), parent):
        reached.set()
        threading.Event().wait()

sys.addaudithook(stick)
streamer = ThreadedStreamer(list, 8)
threading.Thread(target=__import__, args=(MODULE,), daemon=True).start()
reached.wait()
pid = os.fork()
if pid == 0:
    try:
        importlib.import_module(MODULE)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.parametrize(
    ("module", "at"),
    [
        ("service_streamer.hub", "service_streamer.hub._hub"),
        ("xmlrpc.client", "http.client"),
        ("asyncio", "asyncio.subprocess"),
    ],
)
def test_a_forked_child_imports_what_another_thread_was_importing(child, module, at):
    child(f"MODULE, AT = {module!r}, {at!r}\n" + FORK)
