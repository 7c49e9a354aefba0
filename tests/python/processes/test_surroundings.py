"""What a process should have and some do not: its user, its parent, a working folder, /proc."""

import os
import textwrap

import pytest
from process_models import double
from scripts import PRELUDE

from service_streamer import WorkerInitError
from service_streamer._placement import machine
from service_streamer.hub import ModelHub, ModelLoadError, ModelSpec

pytestmark = pytest.mark.slow

IN_CHILD = """
def in_child(function):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            function()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0

def refused(ask):
    try:
        ask()
    except StreamerError as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("it was answered")
"""

OTHER_USER = """
streamer = Streamer(double, 8, mp_start_method="fork", worker_timeout=None)
assert streamer.predict([1]) == [2]

def ask():
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    for client in (streamer, Streamer.connect(streamer.address, worker_timeout=None)):
        for call in (lambda: client.predict([1]), lambda: client.submit([1]), client.stats):
            text = refused(call)
            assert text.startswith("StreamerError") and "of user 65534" in text, text
    in_child(lambda: refused(lambda: streamer.predict([1])))  # its parent was no root any more

in_child(ask)
assert streamer.predict([1]) == [2]
"""

DAEMON = """
class Journal:  # closed by the end of the daemon
    def __init__(self):
        self.read, self.write = os.pipe()

left, told = Journal(), Journal()
if os.fork() == 0:
    os.close(told.read)
    streamer = Streamer(double, 8, mp_start_method="fork", worker_timeout=None)
    if os.fork():  # this is the parent, which ends at once
        os._exit(0)
    os.close(left.write)
    assert os.read(left.read, 1) == b""
    for _ in range(2):
        os.write(told.write, refused(lambda: streamer.predict([1])).encode() + b"\\n")
    os._exit(0)
os.close(left.write)
os.close(told.write)
with open(told.read) as file:
    lines = file.readlines()
assert len(lines) == 2
for line in lines:
    assert line.startswith("StreamerClosed"), line
    assert "make the streamer after the last fork" in line, line
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_process_of_another_user_is_refused_at_once_with_the_rule(child):
    child(PRELUDE + IN_CHILD + OTHER_USER)


def test_the_error_of_a_daemon_forked_after_its_streamer_says_so(child):
    child(PRELUDE + IN_CHILD + DAEMON)


def test_a_deleted_working_folder_is_named(program, tmp_path):
    program(
        textwrap.dedent("""
        import os, tempfile
        from service_streamer import Streamer, WorkerInitError

        if __name__ == "__main__":
            place = tempfile.mkdtemp()
            os.chdir(place)
            os.rmdir(place)
            with Streamer(sorted, 8) as streamer:
                try:
                    streamer.predict([1])
                except WorkerInitError as error:
                    assert "working folder of this process was deleted" in str(error), error
                else:
                    raise AssertionError
        """)
    )


def test_without_proc_it_is_named(process_streamers, monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "_PROC", str(tmp_path))
    with pytest.raises(WorkerInitError, match="mount /proc"):
        process_streamers(double, mp_start_method="spawn").predict([1])
    with (
        ModelHub({"double": ModelSpec(double, batch_size=8)}) as hub,
        pytest.raises(ModelLoadError, match="mount /proc"),
    ):
        hub.predict("double", [1])
