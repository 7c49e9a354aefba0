"""What a notebook shows: HTML of a streamer, its statistics and its report."""

import copy
import gc
import json
import pickle
import weakref
from html.parser import HTMLParser

import pytest

from service_streamer import Streamer, StreamStats, ThreadedStreamer
from service_streamer._statistics.formats import age
from service_streamer._statistics.parts import ConsumerStats
from service_streamer._streamers.notebook import of_stats

VOID = {"br", "hr", "img", "rect"}


class Page(HTMLParser):
    """Checks that the tags fit together; collects texts and names of tags."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.texts = [], set(), []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        assert not [name for name, _ in attributes if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.texts.append(text)


@pytest.fixture
def streamer():
    with ThreadedStreamer(lambda batch: batch, 8) as streamer:
        for size in (1, 2, 3, 3, *20 * [4]):
            streamer.predict([0] * size)
        yield streamer


@pytest.mark.parametrize("get", [lambda s: s, lambda s: s.stats(), lambda s: s.explain()])
def test_a_notebook_shows_sizes_times_and_the_verdict(streamer, get):
    page = Page(get(streamer)._repr_html_())
    text = "\n".join(page.texts)
    assert {"svg", "rect", "table"} <= page.tags
    assert not {"script", "link", "img", "iframe"} & page.tags
    for what in ("items per batch", "why batches closed", "p99", "24 requests", "is the limit"):
        assert what in text


def test_a_streamer_without_a_request_is_shown():
    with ThreadedStreamer(lambda batch: batch, 8) as streamer:
        page = Page(streamer._repr_html_())
    assert "No batch has run yet: nothing to explain." in page.texts
    assert "svg" not in page.tags


def test_workers_are_shown(process_streamers):
    streamer = process_streamers()
    streamer.predict([1])
    (worker,) = streamer.stats().worker_processes
    assert f"pid {worker.pid}" in Page(streamer._repr_html_()).texts


def test_an_absent_streamer_says_so():
    client = Streamer.connect("@<b>nobody</b>")
    page = Page(client._repr_html_())
    assert "nothing listens at @<b>nobody</b>" in "\n".join(page.texts)
    client.close(drain=False)


def test_a_queue_is_shown(streamer):
    stream = StreamStats(5, 2, 1.5, (ConsumerStats("host-<i>-1", 2, 0.25),), 0)
    stats = streamer.stats()
    object.__setattr__(stats, "stream", stream)
    page = Page(of_stats(stats, "a name", "the verdict"))
    for what in ("host-<i>-1", "250 ms", "the verdict", "a name"):
        assert what in page.texts
    assert "items per batch" not in page.texts


def test_the_name_is_escaped(streamer):
    assert "<script>" in Page(of_stats(streamer.stats(), "<script>")).texts


def test_a_report_is_a_str_in_every_use(streamer):
    report = streamer.explain()
    text = str(report)
    assert report == text
    assert hash(report) == hash(text)
    assert json.loads(json.dumps(report)) == text
    assert repr(report) == repr(text)
    for copied in (pickle.loads(pickle.dumps(report)), copy.deepcopy(report)):
        assert copied == text
        assert type(copied) is str


def test_a_report_does_not_keep_its_streamer():
    streamer = ThreadedStreamer(lambda batch: batch, 8)
    streamer.predict([1])
    report = streamer.explain()
    reference = weakref.ref(streamer)
    del streamer
    gc.collect()
    assert reference() is None
    assert report._repr_html_()


def test_ipython_in_a_terminal_prints_lines(streamer):
    class Printer:
        def text(self, text):
            self.shown = text

    printer = Printer()
    streamer.explain()._repr_pretty_(printer, False)
    assert printer.shown.startswith("ThreadedStreamer(")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.9, "59 s"), (60, "1 min 0 s"), (7_261, "2 h 1 min"), (9e5, "10 d 10 h")],
)
def test_a_long_time_has_two_units(seconds, text):
    assert age(seconds) == text
