"""Workers that die, hang or cannot start: every request ends, and the streamer goes on."""

import os
import re
import signal

import pytest
from process_models import WAYS_TO_DIE, HangsOnce, Model, deadly, die, first_time, is_alive
from waits import LONG, eventually

from service_streamer import RequestTimeout, WorkerLost
from service_streamer._processes import pool


def with_methods(name, values):
    """A forked worker gets each value, others the first: what starts interpreters is slow."""
    others = [pytest.param(m, values[0], marks=pytest.mark.slow) for m in ("spawn", "forkserver")]
    return pytest.mark.parametrize(("method", name), [*(("fork", v) for v in values), *others])


def pid_of(streamer):
    (worker,) = streamer.stats().worker_processes
    return worker.pid


def recovers(streamer, old_pid):
    """Whether another process answers now."""
    return streamer.predict(["fine"], timeout=LONG) == ["fine"] and pid_of(streamer) != old_pid


# ------------------------------------------------------------------- in a batch


@pytest.mark.parametrize("way", WAYS_TO_DIE)
def test_a_batch_that_kills_every_worker_is_lost_after_one_retry(
    process_streamers, process_journal, way
):
    def predict(batch):
        process_journal.append((os.getpid(), batch))
        return deadly(batch)

    streamer = process_streamers(predict)
    with pytest.raises(WorkerLost):
        streamer.predict([f"die:{way}"], timeout=LONG)
    runs = process_journal.all()
    assert [batch for _, batch in runs] == [[f"die:{way}"]] * 2
    assert len({pid for pid, _ in runs}) == 2
    assert recovers(streamer, runs[1][0])


@pytest.mark.parametrize("retries", [0, 3])
def test_retries_are_as_many_as_asked_for(process_streamers, process_journal, retries):
    def predict(batch):
        process_journal.append(batch)
        die("SIGKILL")

    streamer = process_streamers(predict, retries=retries)
    with pytest.raises(WorkerLost):
        streamer.predict([1], timeout=LONG)
    assert len(process_journal.all()) == 1 + retries


@with_methods("number", [signal.SIGKILL, signal.SIGSEGV])
def test_requests_of_a_killed_worker_are_answered(process_streamers, process_gate, method, number):
    streamer = process_streamers(process_gate, batch_size=4, mp_start_method=method)
    first = streamer.submit(["first"])
    pid = process_gate.wait_entered()
    others = [streamer.submit([i]) for i in range(8)]
    process_gate.open()
    os.kill(pid, number)
    assert first.result(LONG) == ["firstfirst"]
    assert [future.result(LONG) for future in others] == [[2 * i] for i in range(8)]
    eventually(lambda: not is_alive(pid))  # the end of its socket comes a moment before its own


def test_what_a_model_writes_into_its_input_a_retry_does_not_see(process_streamers, tmp_path):
    numpy = pytest.importorskip("numpy")

    def predict(batch):
        sums = [float(array.sum()) for array in batch]
        for array in batch:
            array += 1
        if first_time(tmp_path):
            die("SIGKILL")
        return sums

    arrays = [numpy.ones(10), numpy.ones(1_000_000)]  # in the message, and in shared memory
    streamer = process_streamers(predict)
    assert streamer.predict(arrays, timeout=LONG) == [10, 1_000_000]
    assert [array.sum() for array in arrays] == [10, 1_000_000]


# ------------------------------------------------------------------------- idle


@with_methods("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_worker_killed_while_idle_is_replaced(process_streamers, method, number):
    streamer = process_streamers(mp_start_method=method, wait_for_worker_ready=True)
    pid = pid_of(streamer)
    os.kill(pid, number)
    eventually(lambda: pid not in [w.pid for w in streamer.stats().worker_processes])
    assert recovers(streamer, pid)
    assert streamer.stats().worker_restarts == 1


def test_the_death_of_a_worker_is_logged_with_its_cause(process_streamers, caplog, monkeypatch):
    monkeypatch.setattr(pool, "EXIT_POLLS", 10 * LONG)
    streamer = process_streamers(wait_for_worker_ready=True)
    pid = pid_of(streamer)
    os.kill(pid, signal.SIGKILL)
    assert recovers(streamer, pid)
    assert re.search(f"{pid}.*SIGKILL", caplog.text)


# ---------------------------------------------------------------------- hanging

# On a busy machine a sound worker may be taken for one that hangs, too: then the next one has it.
HANGS = {"worker_hang_timeout": 1.0, "retries": 1000}


@with_methods("how", ["hang", "SIGSTOP"])
def test_a_worker_that_hangs_is_killed_and_its_batch_run_again(
    process_streamers, process_journal, tmp_path, method, how
):
    streamer = process_streamers(
        HangsOnce, model_init_args=[tmp_path, how, process_journal], mp_start_method=method, **HANGS
    )
    assert streamer.predict([1], timeout=100) == [2]
    hung = process_journal.next()
    assert process_journal.all()[-1] != hung
    eventually(lambda: not is_alive(hung))
    assert streamer.stats().worker_restarts >= 1


def test_the_batch_of_a_worker_that_was_stopped_while_idle_is_run_elsewhere(process_streamers):
    streamer = process_streamers(Model, wait_for_worker_ready=True, **HANGS)
    stopped = pid_of(streamer)
    os.kill(stopped, signal.SIGSTOP)
    (seen,) = streamer.predict([1], timeout=100)
    assert seen["pid"] != stopped
    eventually(lambda: not is_alive(stopped))


def test_without_a_timeout_a_stopped_worker_is_waited_for(process_streamers, process_gate):
    streamer = process_streamers(process_gate)
    future = streamer.submit([1])
    pid = process_gate.wait_entered()
    os.kill(pid, signal.SIGSTOP)
    process_gate.open()
    with pytest.raises(RequestTimeout):
        future.result(0.2)
    os.kill(pid, signal.SIGCONT)
    assert future.result(LONG) == [2]


def test_close_ends_also_a_stopped_worker(process_streamers, monkeypatch):
    monkeypatch.setattr(pool, "GRACE", 2 * LONG)
    streamer = process_streamers(wait_for_worker_ready=True)
    pid = pid_of(streamer)
    os.kill(pid, signal.SIGSTOP)
    streamer.close(timeout=0.1)
    eventually(lambda: not is_alive(pid))
