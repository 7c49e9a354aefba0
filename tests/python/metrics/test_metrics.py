"""metrics.register: errors, registries, and streamers that end."""

import gc
import re

import pytest
from waits import eventually

prometheus_client = pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry  # noqa: E402
from scrapes import scrape  # noqa: E402

from service_streamer import Streamer, StreamerClosed, ThreadedStreamer, metrics  # noqa: E402


@pytest.fixture
def registry():
    return CollectorRegistry()


# ---------------------------------------------------------------------------- errors


@pytest.mark.in_process
def test_a_name_is_used_once(streamers, registry):
    first, second = streamers(), streamers()
    metrics.register(first, "one", registry)
    with pytest.raises(
        ValueError, match=r"the name 'one' is in use by another streamer: <Threaded"
    ):
        metrics.register(second, "one", registry)
    metrics.register(second, "two", registry)
    assert scrape(registry)("up", streamer="two") == 1


@pytest.mark.in_process
@pytest.mark.parametrize("name", ["one", "two"])
def test_a_streamer_is_registered_once(streamers, registry, name):
    streamer = streamers()
    metrics.register(streamer, "one", registry)
    with pytest.raises(ValueError, match=r"<ThreadedStreamer.* is already registered, as 'one'"):
        metrics.register(streamer, name, registry)


@pytest.mark.in_process
def test_registries_are_independent(streamers, registry):
    streamer, other = streamers(), CollectorRegistry()
    metrics.register(streamer, "one", registry)
    metrics.register(streamer, "one", other)
    streamer.predict([1])
    assert scrape(registry).requests("one") == scrape(other).requests("one") == 1


@pytest.mark.in_process
def test_streamers_of_one_name_in_two_registries_are_not_added(streamers, registry):
    other = CollectorRegistry()
    for into, requests in ((registry, 1), (other, 2)):
        streamer = streamers()
        metrics.register(streamer, "one", into)
        for i in range(requests):
            streamer.predict([i])
        assert scrape(into)("batches_total", streamer="one") == requests


@pytest.mark.in_process
@pytest.mark.parametrize("name", ["", "a" * 129, "two\nlines", "\ud800", "\0"])
def test_a_bad_name_is_refused(streamers, registry, name):
    with pytest.raises(ValueError, match=re.escape(f"printable characters, not {name!r}")):
        metrics.register(streamers(), name, registry)


@pytest.mark.in_process
def test_wrong_types_are_refused(streamers, registry):
    with pytest.raises(TypeError, match="name must be a str, not 3"):
        metrics.register(streamers(), 3, registry)
    with pytest.raises(TypeError, match="streamer must be a streamer or a ModelHub, not 'model'"):
        metrics.register("model", "one", registry)
    with pytest.raises(TypeError, match=r"registry must be a .*CollectorRegistry, not 5"):
        metrics.register(streamers(), "one", 5)


def test_a_closed_streamer_is_refused(streamers, registry):
    streamer = streamers()
    streamer.close()
    with pytest.raises(StreamerClosed, match="is closed"):
        metrics.register(streamer, "one", registry)
    assert scrape(registry).text == ""


@pytest.mark.in_process
def test_the_directory_of_the_variable_must_be_one(child, tmp_path):
    file = tmp_path / "file"
    file.touch()
    child(
        """
        import sys
        from prometheus_client import CollectorRegistry
        from service_streamer import ThreadedStreamer, metrics
        try:
            metrics.register(ThreadedStreamer(len, 1), "one", CollectorRegistry())
        except ValueError as error:
            assert str(error).startswith("PROMETHEUS_MULTIPROC_DIR must be the path of a directory")
            assert sys.argv[1] in str(error)
        else:
            sys.exit("accepted")
        """,
        str(file),
        env={"PROMETHEUS_MULTIPROC_DIR": str(file)},
    )


@pytest.mark.in_process
def test_the_default_registry_is_that_of_prometheus_client(streamers):
    streamer = streamers()
    metrics.register(streamer, "of the default registry")
    streamer.predict([1])
    assert scrape(prometheus_client.REGISTRY).requests("of the default registry") == 1
    streamer.close()
    assert "service_streamer_" not in scrape(prometheus_client.REGISTRY).text


# ------------------------------------------------------------------------------ ends


def test_a_closed_streamer_leaves(streamers, registry):
    first, second = streamers(), streamers()
    metrics.register(first, "one", registry)
    metrics.register(second, "two", registry)
    first.close()
    found = scrape(registry)
    assert found("up", streamer="one") is None
    assert found("up", streamer="two") == 1
    second.close()
    assert scrape(registry).text == ""
    assert not registry._collector_to_names


def test_the_name_of_a_closed_streamer_is_free(streamers, registry):
    first = streamers()
    metrics.register(first, "one", registry)
    first.close()
    second = streamers()
    metrics.register(second, "one", registry)
    second.predict([1])
    assert scrape(registry).requests("one") == 1


@pytest.mark.parametrize("cls", [ThreadedStreamer, Streamer])
def test_a_deleted_streamer_leaves(registry, cls):
    options = {"mp_start_method": "fork"} if cls is Streamer else {}
    streamer = cls(lambda batch: batch, 8, **options)
    metrics.register(streamer, "one", registry)
    streamer.predict([1])
    assert scrape(registry).requests("one") == 1
    del streamer
    gc.collect()
    assert scrape(registry).text == ""


def test_a_streamer_that_closes_is_still_exported(held, registry, gate, threads):
    streamer = held(1)
    metrics.register(streamer, "one", registry)
    threads.run(streamer.close)
    eventually(lambda: "closing" in repr(streamer))
    assert scrape(registry)("running_batches", streamer="one") == 1
    gate.open()
    threads.join()
    assert scrape(registry).text == ""


def test_a_streamer_closed_in_a_callback_leaves(streamers, registry):
    streamer = streamers()
    metrics.register(streamer, "one", registry)
    streamer.submit([1]).add_done_callback(lambda _: streamer.close())
    eventually(lambda: scrape(registry).text == "")


def test_a_scrape_while_streamers_come_and_go_does_not_raise(registry, threads):
    def come_and_go(name):
        for _ in range(20):
            with ThreadedStreamer(lambda batch: batch, 4) as streamer:
                metrics.register(streamer, name, registry)
                assert streamer.predict([1]) == [1]

    running = [threads.run(come_and_go, name) for name in ("one", "two", "three")]
    while any(thread.is_alive() for thread in running):
        scrape(registry)
    assert threads.join() == [None] * 3
    assert scrape(registry).text == ""
