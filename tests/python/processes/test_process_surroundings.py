"""Worker processes of unusual programs: from stdin, with many descriptors, spawned themselves."""

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import fcntl, os, resource
from service_streamer import Streamer

def predict(batch):
    return [sorted(os.listdir("/proc/self/fd"), key=int)[-1] == str(BEYOND) for _ in batch]

BEYOND = 300
if __name__ == "__main__":
    {before}
    with Streamer(predict, 8) as streamer:
        print(streamer.predict([1]))
"""
BEYOND_LIMIT = """
    os.set_inheritable(fcntl.fcntl(0, fcntl.F_DUPFD, BEYOND), True)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
"""


def test_an_inheritable_descriptor_above_the_limit_is_closed_in_workers(program):
    assert program(PROGRAM.format(before=BEYOND_LIMIT.strip())).stdout == "[False]\n"


def test_a_program_may_be_read_from_standard_input():
    done = subprocess.run(
        [sys.executable, "-"],
        input=PROGRAM.format(before="pass"),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "[False]\n", done.stderr


@pytest.mark.parametrize(
    ("imported", "remedy"),
    [
        ("uvicorn", "start uvicorn in a file of its own, or create it in a lifespan of the app"),
        ("os", 'create it below `if __name__ == "__main__":`'),
    ],
)
def test_a_process_of_another_program_is_distinguished_from_a_worker(program, imported, remedy):
    code = f"""
        import multiprocessing, sys
        import {imported}
        from service_streamer import Streamer

        streamer = Streamer(sorted, 8) if __name__ == "__mp_main__" else None
        if __name__ == "__main__":
            child = multiprocessing.get_context("spawn").Process(target=print)
            child.start()
            child.join()
            sys.exit(child.exitcode)
    """
    done = program(textwrap.dedent(code), check=False)
    assert done.returncode == 1
    told = "a process that another program has spawned imports the main module again, and line 6 of"
    assert told in done.stderr
    assert remedy in done.stderr
