"""resize() and restart() at run time, without failing a request."""

import os
import threading

import pytest
from process_models import Version, is_alive
from waits import LONG, Threads, eventually

from service_streamer import RequestTimeout, SerializationError, StreamerClosed, WorkerInitError

pytestmark = pytest.mark.slow


class Load:
    """Clients that ask all the time, and once more in the end; `end` returns their answers."""

    def __init__(self, streamer, clients=4):
        self._streamer = streamer
        self._stop = threading.Event()
        self._threads = Threads()
        for _ in range(clients):
            self._threads.run(self._ask)

    def _ask(self):
        answers = []
        while True:
            last = self._stop.is_set()
            answers += self._streamer.predict([1], timeout=LONG)
            if last:
                return answers

    def end(self):
        self._stop.set()
        outcomes = self._threads.join()
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return [answer for answers in outcomes for answer in answers]


@pytest.fixture
def versions(process_streamers):
    def make(**kwargs):
        return process_streamers(
            Version, model_init_args=["old"], wait_for_worker_ready=True, **kwargs
        )

    return make


def pids(streamer):
    return {worker.pid for worker in streamer.stats().worker_processes}


def test_more_and_fewer_workers_under_load(versions):
    streamer = versions()
    load = Load(streamer)
    for count in (3, 1, 2):
        streamer.resize(count)
        streamer.wait_ready(LONG)
        assert streamer.stats().workers == count
        eventually(lambda count=count: len(pids(streamer)) == count)
    assert streamer.stats().worker_restarts == 0
    assert set(load.end()) == {"old"}


@pytest.mark.parametrize("count", [0, -1, 1.5, "two", None])
def test_a_wrong_number_of_workers_is_named(versions, count):
    streamer = versions()
    with pytest.raises(ValueError, match="worker_num"):
        streamer.resize(count)
    assert streamer.predict([1]) == ["old"]


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_a_restart_replaces_all_workers_and_fails_no_request(versions, method):
    streamer = versions(worker_num=2, mp_start_method=method)
    before = pids(streamer)
    load = Load(streamer)
    streamer.restart()
    assert set(load.end()) == {"old"}
    eventually(lambda: not any(map(is_alive, before)))
    eventually(lambda: len(pids(streamer)) == 2)  # the server hears of an end a moment later
    assert streamer.stats().worker_restarts == 0


def test_a_new_version_takes_over_under_load(versions):
    streamer = versions(worker_num=2)
    load = Load(streamer)
    eventually(lambda: streamer.stats().completed)  # the old one has answered a request
    streamer.restart(model_init_args=["new"])
    assert streamer.predict([1]) == ["new"]
    answers = load.end()
    assert set(answers) == {"old", "new"}
    os.kill(next(iter(pids(streamer))), 9)
    streamer.wait_ready(LONG)
    assert {streamer.predict([1])[0] for _ in range(8)} == {"new"}


def str_of_each(batch):
    return [str(item) for item in batch]


def test_the_old_version_answers_while_the_new_one_loads(versions, process_gate, threads):
    streamer = versions()
    threads.run(streamer.restart, model_init_args=["new"], model_init_kwargs={"gate": process_gate})
    process_gate.wait_entered()
    assert streamer.predict([1]) == ["old"]
    process_gate.open()
    assert threads.join() == [None]
    assert streamer.predict([1]) == ["new"]


def refuses(batch):
    raise LookupError("no weights here")


def test_a_version_that_cannot_load_is_reported_and_changes_nothing(versions):
    streamer = versions(worker_num=2, warmup=[1])
    before = pids(streamer)
    load = Load(streamer)
    with pytest.raises(WorkerInitError, match="no weights here"):
        streamer.restart(refuses)
    eventually(lambda: pids(streamer) == before)
    assert set(load.end()) == {"old"}
    streamer.restart(timeout=LONG)
    assert streamer.predict([1]) == ["old"]


def test_a_restart_that_takes_too_long_goes_on(versions, process_gate):
    streamer = versions()
    with pytest.raises(RequestTimeout, match="not restarted"):
        streamer.restart(
            model_init_args=["new"], model_init_kwargs={"gate": process_gate}, timeout=0.1
        )
    with pytest.raises(RequestTimeout):
        streamer.restart(timeout=0)  # after that one, and of its version
    process_gate.open()
    eventually(lambda: streamer.predict([1]) == ["new"])
    streamer.restart(timeout=LONG)
    assert streamer.predict([1]) == ["new"]


def test_wrong_arguments_of_a_restart_are_named(versions, monkeypatch):
    streamer = versions(mp_start_method="spawn")
    with pytest.raises(TypeError, match="model_init_args"):
        streamer.restart(model_init_args="new")
    with pytest.raises(TypeError, match="predict_function_or_model"):
        streamer.restart(5)
    with pytest.raises(SerializationError, match="lock"):
        streamer.restart(model_init_args=[threading.Lock()])
    assert streamer.predict([1]) == ["old"]


def test_close_ends_a_restart_and_a_wait(versions, process_gate, threads):
    streamer = versions()
    threads.run(streamer.restart, model_init_args=["new"], model_init_kwargs={"gate": process_gate})
    process_gate.wait_entered()
    streamer.close()
    (error,) = threads.join()
    assert isinstance(error, StreamerClosed)
    for call in (streamer.restart, lambda: streamer.resize(2), streamer.wait_ready):
        with pytest.raises(StreamerClosed):
            call()


def test_a_restart_revives_a_streamer_that_was_given_up(process_streamers):
    streamer = process_streamers(refuses, warmup=[1])
    eventually(lambda: "5 times in a row" in str(streamer.submit([1]).exception(LONG)))
    streamer.restart(str_of_each, timeout=LONG)
    assert streamer.predict([1]) == ["1"]
