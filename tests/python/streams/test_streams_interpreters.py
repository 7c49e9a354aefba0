"""Streams in interpreters of their own: gevent, fork and exit."""

import textwrap

import pytest
from gevent_prelude import PRELUDE as GEVENT
from scripts import MAKE, PRELUDE

pytestmark = pytest.mark.slow

FOREVER = """
import itertools

def forever(items):
    for step in itertools.count():
        yield [step for _ in items]

def three(items):
    for step in range(3):
        yield [step for _ in items]
"""


@pytest.fixture
def script(child, backend):
    def run(code, prelude=PRELUDE):
        return child(prelude + MAKE[backend] + FOREVER + textwrap.dedent(code))

    return run


def test_the_hub_goes_on_while_a_greenlet_reads(script):
    pytest.importorskip("gevent")
    script(
        """
        flag = NativeFlag()

        def gated_three(items):
            for step in range(3):
                flag.take()
                yield [step for _ in items]

        streamer = make(gated_three, 64)
        jobs = [gevent.spawn(lambda: list(streamer.stream(i))) for i in range(8)]
        gevent.spawn(lambda: [flag.set() or gevent.sleep(0.001) for _ in range(24)])
        gevent.joinall(jobs, timeout=30, raise_error=True)
        assert [job.value for job in jobs] == [[0, 1, 2]] * 8
        """,
        GEVENT,
    )


def test_a_greenlet_that_is_killed_cancels_its_stream(script):
    pytest.importorskip("gevent")
    script(
        """
        streamer = make(forever, 1, worker_timeout=30)
        first = gevent.spawn(lambda: [piece for piece in streamer.stream(1) if piece < 0])
        gevent.sleep(0.01)
        first.kill()
        with streamer.stream(2) as stream:
            assert next(stream) == 0
        """,
        GEVENT,
    )


def test_a_forked_child_has_streams_of_its_own(script):
    script(
        """
        streamer = make(three, 1)
        stream = streamer.stream(1)
        assert next(stream) == 0
        pid = os.fork()
        if pid == 0:
            try:
                next(stream)
            except StreamerClosed as error:
                assert "parent" in str(error)
                assert list(streamer.stream(2)) == [0, 1, 2]
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert list(stream) == [1, 2]
        """
    )


def test_an_open_stream_does_not_delay_the_exit(script):
    done = script(
        """
        streamer = make(forever, 1)
        stream = streamer.stream(1)
        assert next(stream) == 0
        print("end")
        """
    )
    assert done.stdout == "end\n"
