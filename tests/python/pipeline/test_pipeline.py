"""A request goes through all stages, which work at the same time; too many requests wait."""

import threading

import pytest
from thread_models import Indexed, double
from waits import LONG, eventually

from service_streamer import QueueFull, Stage, StreamerClosed, ThreadedStreamer


def add_one(batch):
    return [item + 1 for item in batch]


def as_text(batch):
    return [str(item) for item in batch]


def test_outputs_of_a_stage_are_the_items_of_the_next(pipelines):
    pipeline = pipelines(Stage(add_one, workers=3), Stage(double, batch_size=8), as_text)
    expected = [str(2 * (i + 1)) for i in range(100)]
    for batch in (list(range(100)), range(100), tuple(range(100)), Indexed(list(range(100)))):
        assert pipeline.predict(batch) == expected
    assert pipeline.predict([]) == []
    assert pipeline.submit(range(100)).result(LONG) == expected
    assert list(pipeline.map(range(100))) == expected
    assert list(pipeline.map(iter(range(100)), chunk_size=7)) == expected


def test_the_last_stage_may_return_an_array(pipelines):
    numpy = pytest.importorskip("numpy")
    last = Stage(lambda batch: numpy.array(batch), batch_size=4, output="batch")
    pipeline = pipelines(add_one, last)
    outputs = pipeline.predict(list(range(10)))
    assert isinstance(outputs, numpy.ndarray)
    assert outputs.tolist() == list(range(1, 11))


@pytest.mark.parametrize("batch", ["text", b"bytes", {"a": 1}, iter([1]), 5])
def test_a_batch_that_is_no_sequence_is_refused_at_once(pipelines, batch):
    pipeline = pipelines(double)
    with pytest.raises(TypeError, match="batch must be a sequence"):
        pipeline.submit(batch)


def test_stages_work_at_the_same_time(pipelines):
    meeting = threading.Barrier(2, timeout=LONG)

    def meet_at(request):
        def stage(batch):
            if batch == [request]:
                meeting.wait()
            return batch

        return stage

    # the second stage has the first request while the first stage has the second one
    pipeline = pipelines(meet_at(2), meet_at(1))
    futures = [pipeline.submit([1]), pipeline.submit([2])]
    assert [future.result(LONG) for future in futures] == [[1], [2]]


def test_the_workers_of_a_stage_work_at_the_same_time(pipelines):
    meeting = threading.Barrier(3, timeout=LONG)

    def meet(batch):
        meeting.wait()
        return batch

    pipeline = pipelines(Stage(meet, workers=3))
    assert pipeline.predict([1, 2, 3]) == [1, 2, 3]


def test_a_slow_stage_holds_back_the_ones_before_it(pipelines, gates):
    gate = gates()
    passed = []
    pipeline = pipelines(Stage(lambda b: passed.extend(b) or b), gate, max_in_flight=4)
    futures = [pipeline.submit([i]) for i in range(20)]
    gate.wait_entered()
    eventually(lambda: len(passed) == 4)
    assert pipeline.stats().queued_requests == 16
    gate.open()
    assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(20)]
    assert passed == list(range(20))


def test_a_large_request_goes_in_as_there_is_room(pipelines, gates):
    gate = gates()
    passed = []
    pipeline = pipelines(Stage(lambda b: passed.extend(b) or b), gate, max_in_flight=4)
    future = pipeline.submit(range(50))
    gate.wait_entered()
    eventually(lambda: len(passed) == 4)
    urgent = pipeline.submit([99], priority=1)  # goes in before the rest of the large request
    gate.open()
    assert urgent.result(LONG) == [198]
    assert future.result(LONG) == list(range(0, 100, 2))
    assert passed.index(99) == 4
    assert pipelines(double, max_in_flight=1).predict(range(50)) == list(range(0, 100, 2))


def test_a_full_queue_refuses(pipelines, gates):
    gate = gates()
    pipeline = pipelines(gate, max_in_flight=1, max_queue=1, overflow="reject")
    futures = [pipeline.submit([0])]
    gate.wait_entered()
    futures.append(pipeline.submit([1]))
    with pytest.raises(QueueFull):
        pipeline.submit([2])
    gate.open()
    assert [future.result(LONG) for future in futures] == [[0], [2]]


def test_a_priority_applies_in_every_stage(pipelines, gates):
    gate = gates()
    pipeline = pipelines(add_one, gate)
    futures = [pipeline.submit([0])]
    gate.wait_entered()
    futures += [pipeline.submit([i], priority=i) for i in (1, 3, 2)]
    eventually(lambda: pipeline.stages["Gate"].stats().queued_items == 3)
    gate.open()
    for future in futures:
        future.result(LONG)
    assert gate.batches == [[1], [4], [3], [2]]


def test_streamers_that_are_given_stay_open(pipelines):
    with ThreadedStreamer(double, 8) as shared:
        pipeline = pipelines(add_one, shared, Stage(shared))
        assert pipeline.predict([1, 2]) == [8, 12]
        pipeline.close()
        assert shared.predict([1]) == [2]
    with pytest.raises(StreamerClosed):
        pipelines(shared).wait_ready(LONG)


def test_names_of_stages_are_distinct(pipelines):
    pipeline = pipelines(double, double, Stage(double, name="last"))
    assert list(pipeline.stages) == ["double", "double-2", "last"]
    assert repr(pipeline) == "<Pipeline(double, double-2, last) open: max_in_flight=12>"
