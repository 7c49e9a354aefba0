"""A pipeline whose last stage streams gives its pieces as they are made."""

import threading

import pytest
from thread_models import double
from waits import LONG, eventually

from service_streamer import Stage


def letters(batch):
    """Give one letter of each text after the other."""
    for index in range(max(map(len, batch))):
        yield [text[index] if index < len(text) else None for text in batch]


def upper(batch):
    return [text.upper() for text in batch]


@pytest.fixture(params=["threads", "processes"])
def last(request):
    if request.param == "threads":
        return Stage(letters, batch_size=8)
    return Stage(letters, batch_size=8, processes=True, mp_start_method="fork")


def test_the_last_stage_sends_its_pieces(pipelines, last, run):
    pipeline = pipelines(Stage(upper, workers=2), last)
    assert list(pipeline.stream("words")) == list("WORDS")
    streams = [pipeline.stream(text) for text in ("one", "three")]
    assert [list(stream) for stream in streams] == [list("ONE"), list("THREE")]
    assert pipeline.predict(["ab", "c"]) == [["A", "B"], ["C"]]

    async def main():
        return [piece async for piece in pipeline.astream("words")]

    assert run(main()) == list("WORDS")


def test_an_exception_of_an_earlier_stage_ends_the_stream(pipelines, last):
    with pytest.raises(AttributeError):
        next(pipelines(upper, last).stream(5))


def test_other_stages_do_not_stream(pipelines):
    pipeline = pipelines(letters, Stage(lambda batch: ["".join(each) for each in batch]))
    assert list(pipeline.stream("words")) == ["words"]


def test_a_closed_stream_leaves_its_stage(pipelines):
    pieces = threading.Semaphore(0)
    closed = threading.Event()

    def endless(batch):
        try:
            while pieces.acquire(timeout=LONG):
                yield batch
        finally:
            closed.set()

    pipeline = pipelines(double, endless)
    pieces.release(2)
    with pipeline.stream(1) as stream:
        assert [next(stream), next(stream)] == [2, 2]
    pieces.release(2)
    assert closed.wait(LONG)
    eventually(lambda: pipeline.stats().running_batches == 0)
