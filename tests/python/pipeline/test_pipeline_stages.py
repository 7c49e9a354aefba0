"""What a Stage accepts, and the report that names the stage that limits a pipeline."""

import dataclasses
import functools

import pytest
from process_models import echo
from thread_models import double
from waits import LONG, eventually

from service_streamer import OutputSizeMismatch, Stage, StreamerClosed, ThreadedStreamer
from service_streamer._pipeline.explanation import Load, PipelineStats, loads_of, verdict


def test_options_go_to_the_streamer_of_the_stage(pipelines):
    pipeline = pipelines(Stage(double, 8, workers=3, policy="window", max_latency=0.5), double)
    stats = pipeline.stages["double"].stats()
    assert (stats.batch_size, stats.workers, stats.policy, stats.max_latency) == (
        8,
        3,
        "window",
        0.5,
    )


def test_stages_have_names(pipelines):
    part = functools.partial(echo)
    stages = [Stage(double, name="given"), lambda batch: batch, double, part, echo, lambda _: _]
    names = list(pipelines(*stages).stages)
    assert names == ["given", "stage-2", "double", "echo", "echo-2", "stage-6"]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((double,), {"workers": 0}, "workers must be"),
        ((double,), {"batch_size": 0}, "batch_size must be"),
        ((double,), {"overflow": "reject"}, "overflow='reject': it is an option of the Pipeline"),
        ((double,), {"worker_timeout": 1}, "worker_timeout=1: it is an option of the Pipeline"),
        ((double,), {"worker_num": 2}, "no option worker_num=2: use workers"),
        ((double,), {"name": "a/b"}, "name must be"),
        ((double,), {"processes": 1}, "processes must be"),
        (([double],), {}, "target of a Stage must be"),
    ],
)
def test_a_wrong_stage_is_refused(arguments, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Stage(*arguments, **options)


def test_a_streamer_that_is_given_keeps_its_options():
    with ThreadedStreamer(double, 8) as streamer, pytest.raises(TypeError, match="own options"):
        Stage(streamer, batch_size=4)


def test_a_streamer_that_is_closed_is_refused(pipelines):
    streamer = ThreadedStreamer(double, 8)
    streamer.close()
    with pytest.raises(StreamerClosed, match=r"ThreadedStreamer\(double\) is closed"):
        pipelines(echo, streamer)


def test_an_error_of_a_streamer_names_the_stage(pipelines):
    pipeline = pipelines(echo, Stage(lambda batch: batch[1:], name="short"))
    for _ in range(2):
        with pytest.raises(OutputSizeMismatch, match=r"^stage short: predict_function was given 1"):
            pipeline.predict([1])
    with ThreadedStreamer(double, 8) as streamer:
        pipeline = pipelines(streamer, echo)
    with pytest.raises(StreamerClosed, match=r"^stage ThreadedStreamer\(double\): "):
        pipeline.predict([1])
    with pytest.raises(TypeError, match=r"^unsupported operand"):
        pipelines(double).predict([None])


def test_a_wrong_option_closes_the_stages_that_were_made(pipelines, started):
    with pytest.raises(ValueError, match="policy must be"):
        pipelines(Stage(echo, processes=True, mp_start_method="fork"), Stage(double, policy="x"))
    with pytest.raises(TypeError, match=r"must be a function, a ManagedModel class, .*, not 5"):
        pipelines(5)
    with pytest.raises(TypeError, match="<Stage 'echo'> has no option size"):
        pipelines(Stage(echo, size=3))
    with pytest.raises(TypeError, match=r"no option cuda_devices=.*: it needs processes=True"):
        pipelines(Stage(echo, cuda_devices=[0]))
    with pytest.raises(TypeError, match="a Pipeline cannot be a stage"):
        pipelines(echo, pipelines(double))
    with pytest.raises(ValueError, match="at least one Stage"):
        pipelines()
    with pytest.raises(ValueError, match="max_in_flight must be"):
        pipelines(double, max_in_flight=0)


def test_a_pipeline_cannot_be_configured(pipelines):
    with pytest.raises(NotImplementedError, match="stages"):
        pipelines(double).configure(batch_size=4)


def test_statistics_of_the_whole_and_of_each_stage(pipelines):
    pipeline = pipelines(Stage(echo, name="first"), Stage(double, 8, name="second"))
    assert "nothing to explain" in pipeline.explain()
    pipeline.predict([1, 2, 3])
    with pytest.raises(TypeError):
        pipeline.predict([None])
    eventually(lambda: pipeline.stats().running_batches == 0)
    stats = pipeline.stats()
    assert isinstance(stats, PipelineStats)
    assert (stats.submitted, stats.completed, stats.failed) == (2, 1, 1)
    text = pipeline.explain()
    assert "Failures come first: of 2 requests, 1 failed. " in text
    assert "Only 2 requests so far: too little to judge by." in text
    assert [stats.stages[name].items for name in ("first", "second")] == [4, 4]
    assert stats.service_time.total >= stats.stages["first"].service_time.total


def loads(pipeline, **busy):
    """The loads of its stages, if their workers had been busy for these parts of a second."""
    made = []
    for name, streamer in pipeline.stages.items():
        stats = streamer.stats()
        total = dataclasses.replace(stats.service_time, total=busy[name] * stats.workers)
        stats = dataclasses.replace(stats, service_time=total)
        made.append(Load(name, streamer, stats, stats, 1.0))
    return made


def test_the_report_names_the_stage_that_limits(pipelines, process_streamers):
    pipeline = pipelines(
        Stage(echo, workers=2, name="decode"),
        Stage(double, 4, name="model"),
        Stage(process_streamers(echo, 1), name="render"),
    )
    for _ in range(20):
        pipeline.predict([1])

    def said(cores=8, **busy):
        return verdict(pipeline.stats(), loads(pipeline, **busy), cores)

    assert said(decode=0.97, model=0.3, render=0.2).startswith(
        "The stage decode is the limit: its workers are busy for 97% of the time, those of the "
        "others for at most 30%. More workers raise the throughput if it releases the GIL."
    )
    assert "if they compute, more of them do not help" in said(2, decode=0.97, model=0, render=0)
    assert said(decode=0.2, model=0.1, render=0.9).startswith("The stage render is the limit")
    assert said(decode=0.2, model=0.1, render=0.3).startswith("The load is the limit")
    # its batches have one item of four: perhaps it can do more
    assert said(decode=0.2, model=0.97, render=0.3).startswith(
        "The load or the stage model is the limit: its workers are busy for 97% of the time, with "
        "1.0 items of 4 in a batch. More requests at the same time raise the throughput if "
    )
    assert "The stage model is the nearest" in said(decode=0.5, model=0.6, render=0.3)
    report = pipeline.explain()
    assert all(name in report for name in ("decode", "model", "render"))


def test_the_report_says_that_max_in_flight_limits(pipelines):
    pipeline = pipelines(echo, Stage(double, 4), max_in_flight=2)
    for _ in range(20):  # in a second, each for 0.1 s in the stages: two at the same time
        pipeline.predict([1])
    stats = pipeline.stats()
    queue, service = (
        dataclasses.replace(stats.service_time, mean=mean, total=20 * mean) for mean in (0.5, 0.1)
    )
    stats = dataclasses.replace(stats, queue_time=queue, service_time=service)
    stages = loads(pipeline, echo=0.2, double=1)
    assert verdict(stats, stages).startswith("max_in_flight=2 is the limit: requests wait before")
    stats = dataclasses.replace(stats, queue_time=service, service_time=queue)
    assert verdict(dataclasses.replace(stats, workers=40), stages).startswith("The load or the")


def test_all_stages_are_compared_in_the_same_time(pipelines):
    pipeline = pipelines(Stage(echo, name="decode"), Stage(double, name="model"))
    pipeline.predict([1])
    stats = pipeline.stats()
    stages = {}
    for name, batches, busy in (("decode", 170, 59), ("model", 30, 60)):
        times = dataclasses.replace(stats.service_time, total=busy)
        minute = stats.last_minute
        minute = dataclasses.replace(minute, batches=batches, service_time=times, seconds=60)
        stages[name] = dataclasses.replace(stats.stages[name], last_minute=minute, uptime=600)
    stats = dataclasses.replace(stats, stages=stages)
    assert [load.busy for load in loads_of(pipeline.stages, stats)] == [59 / 60, 1]


def test_requests_in_a_stage_are_counted(pipelines, gates):
    gate = gates()
    pipeline = pipelines(echo, gate)
    futures = [pipeline.submit([i]) for i in range(3)]
    gate.wait_entered()
    eventually(lambda: loads_of(pipeline.stages, pipeline.stats())[1].requests == 3)
    gate.open()
    for future in futures:
        future.result(LONG)
