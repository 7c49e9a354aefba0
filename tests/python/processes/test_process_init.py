"""Models that cannot be loaded, and items, outputs and exceptions that cannot travel."""

import contextlib
import os
import re
import signal

import pytest
from process_models import (
    BadInit,
    Lingering,
    Once,
    is_alive,
)
from waits import LONG, eventually

from service_streamer import (
    RequestTimeout,
    SerializationError,
    Streamer,
    WorkerInitError,
)
from service_streamer._base.errors import WorkerTraceback
from service_streamer._processes import pool

pytestmark = pytest.mark.slow

METHODS = ["spawn", "fork", "forkserver"]

BAD_INITS = {
    "raise": "LookupError: no weights here",
    "sys.exit": "SystemExit: 9",
    "exit": "exited with code 7",
    "exit slowly": "exited with code 7",
    "segfault": "was killed by SIGSEGV",
    "SIGKILL": "was killed by SIGKILL",
}


@pytest.mark.parametrize(
    ("method", "how"),
    [
        *(("fork", how) for how in BAD_INITS),
        *((method, how) for method in ("spawn", "forkserver") for how in ("raise", "SIGKILL")),
        ("forkserver", "exit"),  # the forkserver reports the code
    ],
)
def test_a_model_that_cannot_be_loaded_is_reported_at_once(
    process_streamers, method, how, monkeypatch
):
    monkeypatch.setattr(pool, "EXIT_POLLS", 10 * LONG)  # it learns how each of them ends
    streamer = process_streamers(
        BadInit, model_init_args=[how], mp_start_method=method, worker_timeout=LONG
    )
    for call in (streamer.predict, lambda batch: streamer.submit(batch).result(LONG)):
        with pytest.raises(WorkerInitError, match=re.escape(BAD_INITS[how])):
            call([1])
    with pytest.raises(WorkerInitError, match=re.escape(BAD_INITS[how])):
        streamer.wait_ready(LONG)


def ask_a_client(streamer):
    with Streamer.connect(streamer.address) as client:
        client.predict([1], timeout=LONG)


@pytest.mark.parametrize(
    "ask", [lambda streamer: streamer.predict([1]), Streamer.wait_ready, ask_a_client]
)
def test_the_error_begins_with_its_cause_which_has_the_traceback(process_streamers, ask):
    streamer = process_streamers(BadInit, model_init_args=["raise"], worker_timeout=LONG)
    with pytest.raises(WorkerInitError) as info:
        ask(streamer)
    assert str(info.value).startswith("LookupError: no weights here")
    cause = info.value.__cause__
    assert type(cause) is LookupError
    assert cause.args == ("no weights here",)
    assert isinstance(cause.__cause__, WorkerTraceback)
    assert "in init_model" in cause.__cause__.text


def test_an_error_that_cannot_be_pickled_has_a_cause_with_the_traceback(process_streamers):
    def fails(batch):
        raise Unpicklable("secret")

    streamer = process_streamers(fails, warmup=[1])
    with pytest.raises(WorkerInitError, match="Unpicklable") as info:
        streamer.wait_ready(LONG)
    assert "in fails" in info.value.__cause__.__cause__.text


def test_a_constructor_that_waits_raises_and_leaves_nothing(process_journal):
    def loads_never(batch):
        process_journal.append(os.getpid())
        raise LookupError("no weights here")

    with pytest.raises(WorkerInitError, match="no weights here"):
        Streamer(loads_never, 8, warmup=[1], wait_for_worker_ready=True, mp_start_method="fork")
    # one that ends by itself is not killed
    eventually(lambda: not any(is_alive(pid) for pid in process_journal.all()))


@pytest.mark.parametrize("how", ["exit", "SIGKILL"])
def test_the_only_worker_may_die_once_while_it_loads(
    process_streamers, process_gate, tmp_path, how
):
    streamer = process_streamers(Once, model_init_args=[tmp_path, how, process_gate])
    future = streamer.submit([1])  # before the first attempt fails
    process_gate.open()
    streamer.wait_ready(LONG)
    assert future.result(LONG) == [1]


def test_a_model_that_loads_at_the_second_attempt(process_streamers, process_gate, tmp_path):
    streamer = process_streamers(Once, model_init_args=[tmp_path, "raise", process_gate])
    future = streamer.submit([1])  # before the first attempt fails
    process_gate.open()
    assert isinstance(future.exception(LONG), WorkerInitError)

    def is_ready():
        with contextlib.suppress(WorkerInitError):  # the failure is in force until it is
            streamer.wait_ready(LONG)
            return True

    eventually(is_ready)
    assert streamer.predict([1]) == [1]


@pytest.mark.parametrize("method", METHODS)
def test_a_process_that_stays_though_its_model_cannot_be_loaded_is_killed(
    process_streamers, process_journal, tmp_path, monkeypatch, method
):
    monkeypatch.setattr(pool, "GRACE", 0.1)
    streamer = process_streamers(
        Lingering, model_init_args=[str(tmp_path), process_journal], mp_start_method=method
    )
    pid = process_journal.next()
    eventually(lambda: not is_alive(pid))
    eventually(lambda: streamer.submit([1]).exception(LONG) is None)


def test_a_model_that_loads_for_ever_delays_no_other(process_streamers, process_gate):
    streamer = process_streamers(process_gate, warmup=["load"], worker_timeout=0.1)
    pid = process_gate.wait_entered()
    with pytest.raises(RequestTimeout):
        streamer.predict([1])
    with pytest.raises(RequestTimeout):
        streamer.wait_ready(0.1)
    streamer.close()
    assert not is_alive(pid)


def test_a_model_that_spawned_workers_cannot_find(program):
    done = program(
        """
        from service_streamer import Streamer, WorkerInitError

        if __name__ == "__main__":
            def predict(batch):  # is not there when the worker imports this file
                return batch

            try:
                Streamer(predict, 8, worker_timeout=100).predict([1])
            except WorkerInitError as error:
                print("predict" in str(error) and "__mp_main__" in str(error))
        """
    )
    assert done.stdout == "True\n"


# -------------------------------------------------------- what cannot travel


class Unloadable:
    """Can be pickled, but not unpickled."""

    def __reduce__(self):
        return _refuse, ()


def _refuse():
    raise ValueError("it does not want to be loaded")


class Unpicklable(Exception):
    def __reduce__(self):
        raise TypeError("it does not want to be pickled")


def test_an_item_that_cannot_be_loaded_fails_its_request_alone(process_streamers, process_gate):
    streamer = process_streamers(process_gate)
    first = streamer.submit([0])
    process_gate.wait_entered()
    bad, good = streamer.submit([Unloadable()]), streamer.submit([1])
    process_gate.open()
    with pytest.raises(SerializationError, match="does not want to be loaded") as info:
        bad.result(LONG)
    assert isinstance(info.value.__cause__, WorkerTraceback)
    assert (first.result(LONG), good.result(LONG)) == ([0], [2])


def test_an_output_that_cannot_be_pickled_fails_its_request_alone(process_streamers, process_gate):
    process_gate._predict = lambda batch: [(lambda: 0) if i == "bad" else i for i in batch]
    streamer = process_streamers(process_gate)
    first = streamer.submit([0])
    process_gate.wait_entered()
    bad, good = streamer.submit(["bad"]), streamer.submit([1])
    process_gate.open()
    with pytest.raises(SerializationError, match=r"output.*function"):
        bad.result(LONG)
    assert (first.result(LONG), good.result(LONG)) == ([0], [1])


def test_an_exception_that_cannot_travel_arrives_as_text_with_its_traceback(process_streamers):
    def predict(batch):
        raise Unpicklable("secret")

    streamer = process_streamers(predict)
    with pytest.raises(SerializationError, match="Unpicklable: secret") as info:
        streamer.predict([1])
    assert "in predict" in str(info.value.__cause__)


def test_a_stopped_process_of_a_model_that_loads_is_ended(process_streamers, process_gate):
    streamer = process_streamers(process_gate, warmup=["load"])
    pid = process_gate.wait_entered()
    os.kill(pid, signal.SIGSTOP)
    streamer.close()
    assert not is_alive(pid)
