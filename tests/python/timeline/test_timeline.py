"""record() of a ThreadedStreamer, and of streamers of any kind."""

import os
import threading

import pytest
import traces
from thread_models import Gate, double
from waits import LONG

from service_streamer import RedisStreamer, StreamerClosed, StreamerError, ThreadedStreamer


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.json"


@pytest.fixture
def streamer():
    with ThreadedStreamer(double, 8) as streamer:
        yield streamer


# ------------------------------------------------------------------- what is in it


def test_requests_lead_to_the_batches_that_ran_them(path):
    gate = Gate()
    with ThreadedStreamer(gate, 4) as streamer, streamer.record(path):
        futures = [streamer.submit([0])]
        gate.wait_entered()
        futures += [streamer.submit([1, 2, 3]), streamer.submit([4, 5], priority=3)]
        gate.open()
        for future in futures:
            future.result(LONG)
    entries, metadata = traces.read(path)
    first, second, third = traces.batches(entries)
    assert [each["args"]["size"] for each in (first, second, third)] == [1, 4, 1]
    assert [each["args"]["requests"] for each in (first, second, third)] == [1, 2, 1]
    assert second["args"]["close_reason"] == "full"
    assert {each["args"]["outcome"] for each in (first, second, third)} == {"answered"}
    numbers = [each["args"]["batch"] for each in (first, second, third)]
    assert traces.arrows(entries) == {
        (1, numbers[0]): 1,
        (3, numbers[1]): 2,
        (2, numbers[1]): 2,
        (2, numbers[2]): 1,
    }
    found = traces.requests(entries)
    assert [each["args"]["items"] for each in found] == [1, 3, 2]
    assert [each["name"] for each in found] == ["request", "request", "request of priority 3"]
    assert {each["outcome"] for each in found} == {"answered"}
    assert metadata["lost_events"] == 0
    assert metadata["streamer"].startswith("ThreadedStreamer(")
    queued = [each["args"]["items"] for each in entries if each["name"] == "queued items"]
    assert max(queued) == 5
    assert queued[-1] == 0
    assert {each["pid"] for each in entries} == {os.getpid()}


def test_a_worker_thread_has_the_track_of_its_thread(path):
    seen = []

    def model(batch):
        seen.append(threading.get_native_id())
        return batch

    with ThreadedStreamer(model, 8) as streamer, streamer.record(path):
        streamer.predict([1])
    entries, _ = traces.read(path)
    assert [each["tid"] for each in traces.batches(entries)] == seen


def test_parts_of_a_batch_that_raises_lie_inside_it(path):
    def model(batch):
        if -1 in batch:
            raise ValueError("guilty")
        return batch

    gate = Gate(model)
    with ThreadedStreamer(gate, 8) as streamer, streamer.record(path):
        streamer.submit([0])
        gate.wait_entered()
        futures = [streamer.submit([number]) for number in (1, -1, 2, 3)]
        gate.open()
        assert isinstance(futures[1].exception(LONG), ValueError)
        assert [futures[i].result(LONG) for i in (0, 2, 3)] == [[1], [2], [3]]
    entries, _ = traces.read(path)
    batches = traces.batches(entries)
    assert [each["args"]["size"] for each in batches[:2]] == [1, 4]
    assert len(batches) > 3
    assert all(each["name"].endswith(", again") for each in batches[2:])
    outcomes = [each["outcome"] for each in traces.requests(entries)]
    assert sorted(outcomes) == ["answered"] * 4 + ["failed"]


def test_what_has_not_ended_is_in_it(path):
    gate = Gate()
    with ThreadedStreamer(gate, 1) as streamer:
        with streamer.record(path):
            futures = [streamer.submit([0]), streamer.submit([1])]
            gate.wait_entered()
        gate.open()
        for future in futures:
            future.result(LONG)
    entries, _ = traces.read(path)
    assert [each["args"]["outcome"] for each in traces.batches(entries)] == ["unfinished"]
    assert [each["outcome"] for each in traces.requests(entries)] == ["unfinished"] * 2


def test_the_number_of_events_is_limited(streamer, path):
    with streamer.record(path, max_events=10):
        for _ in range(20):
            streamer.predict([1])
    entries, metadata = traces.read(path)
    assert metadata["lost_events"] == 90  # a request has arrived, cut, part, completed and ended
    assert 1 <= len(traces.requests(entries)) <= 2


def test_the_time_is_limited(streamer, path):
    with streamer.record(path, seconds=1e-9):
        streamer.predict([1])
    entries, _ = traces.read(path)
    assert traces.requests(entries) == []


# ------------------------------------------------------------------------ the file


def test_a_file_may_be_compressed(streamer, tmp_path):
    path = tmp_path / "trace.json.gz"
    with streamer.record(str(path)):
        streamer.predict([1])
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    assert len(traces.batches(traces.read(path)[0])) == 1


def test_a_path_that_cannot_be_written_is_refused_before_the_block(streamer, tmp_path, path):
    for wrong in (tmp_path, tmp_path / "missing" / "trace.json"):
        with pytest.raises(OSError, match=str(wrong)), streamer.record(wrong):
            pytest.fail("the block ran")
    with streamer.record(path):  # no recording was left
        pass
    traces.read(path)


def test_an_exception_in_the_block_passes_and_the_file_is_written(streamer, path):
    def fail():
        with streamer.record(path):
            streamer.predict([1])
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert len(traces.batches(traces.read(path)[0])) == 1


@pytest.mark.parametrize("drain", [True, False])
def test_a_streamer_may_be_closed_in_the_block(streamer, path, drain):
    with streamer.record(path):
        streamer.predict([1])
        streamer.close(drain)
    assert len(traces.batches(traces.read(path)[0])) == 1
    with pytest.raises(StreamerClosed):
        streamer.predict([1])


# ------------------------------------------------------------------------ refusals


def test_there_is_one_recording_at_a_time(streamer, path, tmp_path):
    other = tmp_path / "other.json"
    with streamer.record(path):
        with pytest.raises(StreamerError, match="is being recorded already"):
            streamer.record(other).__enter__()
        streamer.predict([1])
    assert not other.exists()
    assert len(traces.batches(traces.read(path)[0])) == 1
    with streamer.record(other):
        pass
    traces.read(other)


@pytest.mark.parametrize("seconds", [0, -1, 3601, float("inf"), float("nan"), None, "5", True])
def test_a_wrong_time_is_refused(streamer, path, seconds):
    with pytest.raises(ValueError, match="seconds must be"):
        streamer.record(path, seconds=seconds)
    assert not path.exists()


@pytest.mark.parametrize("number", [0, 1 << 23, 1.5])
def test_a_wrong_number_of_events_is_refused(streamer, path, number):
    with pytest.raises(ValueError, match="max_events must be"):
        streamer.record(path, max_events=number)


def test_a_recorder_records_once_at_a_time(streamer, path):
    recorder = streamer.record(path)
    with recorder, pytest.raises(RuntimeError, match="has begun already"):
        recorder.__enter__()
    with recorder:
        streamer.predict([1])
    assert len(traces.batches(traces.read(path)[0])) == 1


def test_a_redis_streamer_names_what_can_be_recorded(path):
    pytest.importorskip("redis")
    with RedisStreamer() as streamer, pytest.raises(NotImplementedError, match="RedisWorker"):
        streamer.record(path).__enter__()
    assert not path.exists()


def test_a_forked_child_leaves_the_file_to_its_parent(streamer, path):
    with streamer.record(path) as recorder:
        streamer.predict([1])
        child = os.fork()
        if child == 0:
            try:
                recorder.__exit__(None, None, None)
            finally:
                os._exit(os.stat(path).st_size)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(traces.batches(traces.read(path)[0])) == 1
