"""A step model as a stage of a pipeline."""

import pytest
from step_models import Countdown, down
from waits import LONG, eventually

from service_streamer import Pipeline, Stage


def twice(items):
    return [2 * item for item in items]


def total(lists):
    return [sum(each) for each in lists]


@pytest.fixture(params=["thread", "process"])
def countdown(request):
    """A stage with a step model."""

    def countdown(batch_size=4, **options):
        if request.param == "thread":
            return Stage(Countdown(), batch_size, **options)
        return Stage(Countdown, batch_size, mp_start_method="fork", **options)

    return countdown


def test_the_next_stage_gets_the_list_of_outputs_of_each_item(countdown):
    with Pipeline(twice, countdown(), total) as pipeline:
        futures = [pipeline.submit([i, 1]) for i in range(1, 20)]
        for i, future in enumerate(futures, 1):
            assert future.result(LONG) == [sum(down(2 * i)), 3]


def test_a_stream_of_the_last_stage(countdown):
    with Pipeline(twice, countdown()) as pipeline:
        assert list(pipeline.stream(50)) == down(100)
        assert pipeline.predict([1]) == [[2, 1]]


def test_an_item_that_is_cancelled_leaves(countdown):
    with Pipeline(twice, countdown(1, name="steps")) as pipeline:
        stream = pipeline.stream(10**9, buffer=4)
        assert next(stream) == 2 * 10**9
        stream.close()
        assert pipeline.predict([1]) == [[2, 1]]
        future = pipeline.submit([10**9])
        eventually(lambda: pipeline.stages["steps"].stats().steps.live == 1)
        future._abandon()
        assert pipeline.predict([1]) == [[2, 1]]


def test_the_report_counts_places(countdown):
    with Pipeline(twice, countdown(8, name="steps")) as pipeline:
        futures = [pipeline.submit([10**9]) for _ in range(2)]
        eventually(lambda: pipeline.stages["steps"].stats().steps.live == 2)
        for _ in range(20):
            pipeline.predict([40])
        for future in futures:
            future._abandon()
        eventually(lambda: pipeline.stages["steps"].stats().steps.live == 0)
        report = pipeline.explain()
        (row,) = (line for line in report.splitlines() if line.startswith("steps "))
        workers, busy = row.split()[1:3]
        assert workers == "1"
        assert int(busy.rstrip("%")) < 60, report
