"""map(): ordered, lazy, bounded in flight, for notebooks and offline jobs."""

import pytest
from thread_models import double
from waits import LONG

from service_streamer import StreamerClosed


def test_outputs_come_in_the_order_of_the_items(streamers):
    streamer = streamers(batch_size=8)
    assert list(streamer.map(range(100))) == list(range(0, 200, 2))
    assert list(streamer.map(range(100), chunk_size=7)) == list(range(0, 200, 2))
    assert list(streamer.map(iter([]))) == []
    assert list(streamer.map("ab" for _ in range(2))) == ["abab", "abab"]


@pytest.mark.not_redis
def test_items_go_to_the_model_in_chunks(streamers, journal):
    streamer = streamers(lambda batch: journal.append(len(batch)) or batch, batch_size=4)
    list(streamer.map(range(10)))
    assert max(journal.all()) == 4
    assert sum(journal.all()) == 10


def test_nothing_happens_before_the_first_output_is_asked_for(streamers):
    streamer = streamers()
    read = []
    iterator = streamer.map(read.append(i) or i for i in range(10))
    assert read == []
    assert streamer.stats().submitted == 0
    assert next(iterator) == 0
    iterator.close()


@pytest.mark.parametrize("chunk_size", [None, 1, 5, 1000])
def test_the_iterable_is_read_only_a_few_batches_ahead(streamers, chunk_size):
    streamer = streamers(batch_size=8)
    read = []
    iterator = streamer.map((read.append(i) or i for i in range(10**6)), chunk_size=chunk_size)
    for i in range(50):
        assert next(iterator) == 2 * i
        ahead = max(2 * (chunk_size or 8), 8 * 8)
        assert len(read) <= i + 1 + ahead
    iterator.close()


def test_closing_the_iterator_cancels_what_is_under_way(streamers):
    streamer = streamers(batch_size=4)
    iterator = streamer.map(range(1000))
    assert next(iterator) == 0
    iterator.close()
    assert streamer.stats().queued_items == 0
    assert streamer.predict([1]) == [2]


def test_an_exception_ends_the_iterator_and_cancels_the_rest(streamers):
    def predict(batch):
        if 20 in batch:
            raise ValueError("twenty")
        return batch

    streamer = streamers(predict, batch_size=4)
    outputs = []

    def consume():
        for output in streamer.map(range(1000)):
            outputs.append(output)

    with pytest.raises(ValueError, match="twenty"):
        consume()
    assert outputs == list(range(20))
    assert streamer.stats().queued_items == 0


def test_a_full_queue_that_rejects_is_filled_again_as_answers_come(streamers):
    streamer = streamers(batch_size=4, max_queue=6, overflow="reject")
    assert list(streamer.map(range(200))) == list(range(0, 400, 2))


def test_close_ends_the_iterator(streamers):
    streamer = streamers(batch_size=2)
    iterator = streamer.map(range(100))
    next(iterator)
    streamer.close(drain=False)
    with pytest.raises(StreamerClosed):
        list(iterator)


@pytest.mark.parametrize("batch", ["text", b"bytes", {"a": 1}])
def test_one_item_instead_of_many_is_refused_at_once(streamers, batch):
    with pytest.raises(TypeError, match=type(batch).__name__):
        streamers().map(batch)


def test_wrong_arguments_are_refused_at_once(streamers):
    streamer = streamers()
    with pytest.raises(TypeError, match="int"):
        streamer.map(5)
    for chunk_size in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="chunk_size"):
            streamer.map([1], chunk_size=chunk_size)


def test_progress_shows_a_bar(streamers, capsys):
    pytest.importorskip("tqdm")
    assert list(streamers().map(range(20), progress=True)) == list(range(0, 40, 2))
    assert "20/20" in capsys.readouterr().err


@pytest.mark.not_redis
def test_map_of_low_priority_lets_others_pass(held, gate):
    streamer = held(batch_size=2)
    gate._predict = double
    iterator = streamer.map(range(8), priority=-1)
    first = streamer.submit(["x"], priority=0)
    gate.open()
    assert list(iterator) == list(range(0, 16, 2))
    assert first.result(LONG) == ["xx"]
